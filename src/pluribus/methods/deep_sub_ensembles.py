"""Deep Sub-Ensembles: one trunk, and M copies of the layers after it.

Valdenegro-Toro, "Deep sub-ensembles for fast uncertainty estimation in image classification", NeurIPS
Bayesian Deep Learning Workshop 2019, arXiv:1910.08168.

The first layers, the trunk, are shared and learn features once; the others are an ensemble upon them.
The larger the trunk, the cheaper and the less diverse the members.

    f_m(x) = h(t(x; ψ); θ_m),    m = 1 … M                                        (1)

    symbol   here
    t, ψ     the trunk and its weights
    h, θ_m   the tail and the weights of member m
    M        members

Cost: one trunk and M tails to store; M passes to train. To predict, the trunk runs once and every tail.
Deviations: the paper trains one whole network, then the further tails on its frozen trunk; here the trunk
and all tails train together on the mean of the members' losses, unless the trunk's parameters are frozen
before `convert`. The tail's norms and running statistics belong to the member.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.index import Fixed
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.options import draw_options, start_alike
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.select import select
from pluribus.method import Built, LayerChoice, Method
from pluribus.settings import number, one_of, refuse, whole

TRUNK = "trunk"


@dataclass(frozen=True)
class DeepSubEnsembles(Method):
    """M networks that share their first layers.

    Args:
        members: How many tails, at least 1.
        trunk: The layers that stay shared: a share of those with parameters, in the network's order, at
            least 0 and below 1, rounded down; or a name pattern, or several.
        start: `fresh` initialises every tail anew, from the model's own initialisers or by calling the
            factory again; `copy` starts all tails from the model's weights. The trunk keeps its own.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> ensemble = pluribus.convert(model, DeepSubEnsembles(members=5, trunk="0"))
        >>> ensemble(torch.zeros(7, 3)).shape, sum(p.numel() for p in ensemble.parameters())
        (torch.Size([5, 7, 2]), 122)
    """

    members: int = 4
    trunk: float | str | tuple[str, ...] = 0.5
    start: str = "fresh"

    def __post_init__(self) -> None:
        whole("members", self.members)
        if isinstance(self.trunk, list):  # as a file gives it
            object.__setattr__(self, "trunk", tuple(self.trunk))
        if isinstance(self.trunk, int | float):
            number("trunk", self.trunk, least=0, below=1)
        elif not self.trunk or not all(isinstance(pattern, str) for pattern in self.trunk):
            raise refuse("trunk", "a share of layers, a name pattern or several", self.trunk)
        one_of("start", self.start, ("fresh", "copy"))

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        choices = self._split(choices)
        tail = [choice.site for choice in choices if choice.method]
        wanted = {
            name: (self.members, self.start) for site in tail for name in (*site.trained, *site.statistics)
        }
        own, notes = draw_options(network, wanted, seed)
        if start_alike(network, own):
            notes.append("members start alike, and only other randomness in training tells them apart")
        rows = tuple(_row(choice, self.members, self.start) for choice in choices)
        code = PlainCode.of(network.module, network.output)
        # The trunk runs once for all tails, which is worth a plan.
        members = Members(Fixed(self.members), Stacked.of_network(network, own), code, lowers=True)
        return Built(members, rows, tuple(notes))

    def _split(self, choices: Sequence[LayerChoice]) -> list[LayerChoice]:
        """The choices with the layers of the trunk left."""
        layers = [choice.site for choice in choices if choice.method]
        if isinstance(self.trunk, int | float):
            trunk = set(layers[: int(self.trunk * len(layers))])
        else:
            trunk = set(select([choice.site for choice in choices], self.trunk, TRUNK))
        tail = [site for site in layers if site not in trunk]
        if not any(site.trained for site in tail):
            raise ConversionError(
                f"the tail must have a layer to train, however: trunk={self.trunk!r} leaves "
                f"{', '.join(map(str, tail)) or 'none'}. Make the trunk smaller."
            )
        shared = {name: site for site in trunk for name in site.tied}
        for site in tail:
            for name in shared.keys() & set(site.tied):
                raise ConversionError(
                    f"tied layers must be on one side, however: {shared[name]} is in the trunk, {site} in "
                    f"the tail, and both hold {name}. Name the trunk's layers with trunk=(...)."
                )
        return [
            replace(choice, method=None, reason=choice.reason or TRUNK) if choice.site in trunk else choice
            for choice in choices
        ]


def _row(choice: LayerChoice, members: int, start: str) -> LayerRecord:
    site = choice.site
    if choice.method is None:
        return LayerRecord(site.names, site.kind, "shared", choice.reason)
    if not site.trained and site.parameters:
        return LayerRecord(site.names, site.kind, f"shared, with {members} running statistics", "frozen")
    return LayerRecord(site.names, site.kind, f"{members} copies, start {start}")
