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
and all tails train together on the mean of the members' losses. Where the trunk's parameters are frozen
before `convert`, the losses are summed and every tail trains as if it were alone. The tail's norms and
running statistics belong to the member.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from torch import Tensor

from pluribus.axes import Between, OneOf
from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.index import Fixed
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.options import draw_options, start_alike
from pluribus.mechanisms.members.orders import assign_orders, count_orders, has_own_orders
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.members.reduction import REDUCTIONS, reduce_losses, trains_apart
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.network.layers import Site, select
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import MOST_MEMBERS, check, invalid
from pluribus.recipe import COPIES_LR, Recipe
from pluribus.settings import searched, setting

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
        reduction: Of the members' losses: `sum`, `mean`, or `auto`, which is the sum where the trunk is
            frozen and the mean where it is trained.
        shuffle_members: Whether each member goes through the training set in an order of its own; None does
            so where all tails start alike, which equal batches would leave alike for ever.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> ensemble = pluribus.convert(model, DeepSubEnsembles(members=5, trunk="0"))
        >>> ensemble(torch.zeros(7, 3)).shape, sum(p.numel() for p in ensemble.parameters())
        (torch.Size([5, 7, 2]), 122)
    """

    members: int = setting(
        4,
        at_least=1,
        at_most=MOST_MEMBERS,
        remedy="Use members=1 for a single network.",
        search=Between(2, 8),
    )
    trunk: float | str | tuple[str, ...] = field(default=0.5, metadata=searched(OneOf((0.25, 0.5, 0.75))))
    start: str = setting("fresh", choices=("fresh", "copy"))
    reduction: str = setting("auto", choices=REDUCTIONS)
    shuffle_members: bool | None = setting(None, kind=bool)

    version: ClassVar[int] = 3
    added: ClassVar[Mapping[int, Mapping[str, Any]]] = {
        2: {"reduction": "mean"},
        3: {"shuffle_members": False},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        # Files hold lists; settings compare and hash as tuples.
        if isinstance(self.trunk, list):
            object.__setattr__(self, "trunk", tuple(self.trunk))
        if isinstance(self.trunk, int | float):
            check("trunk", self.trunk, float, at_least=0, below=1)
        elif not self.trunk or not all(isinstance(pattern, str) for pattern in self.trunk):
            raise invalid("trunk", "a share of layers, a name pattern or several", self.trunk)

    @property
    def _shuffles(self) -> bool:
        return has_own_orders(self.shuffle_members, self.start)

    @property
    def data_orders(self) -> int:
        return count_orders(self.members, self._shuffles)

    def assign(self, batch: int, rows: Sequence[Any], progress: float) -> list[Tensor] | None:
        return assign_orders(batch, rows, self._shuffles)

    def is_separate(self, members: AnyMembers) -> bool:
        return trains_apart(self.reduction, members)

    def combine(self, losses: Tensor, shares: Tensor, members: AnyMembers, progress: float) -> Tensor:
        return reduce_losses(losses, shares, self.reduction, members)

    @property
    def on_trained(self) -> str:
        return {"copy": "kept", "fresh": "retrain"}[self.start]

    def for_trained(self) -> Self:
        return replace(self, start="copy")

    def recipe(self) -> Recipe:
        return Recipe(tuning_lr=COPIES_LR) if self.start == "copy" else Recipe()

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        # Find the layers of the tail, which are those that keep their method.
        choices = self._split(choices)

        # Make the tensors.
        wanted: dict[str, tuple[int, str]] = {}
        for choice in choices:
            if choice.method:
                names = (*choice.site.trained, *choice.site.statistics)
                wanted |= dict.fromkeys(names, (self.members, self.start))
        own, notes = draw_options(network, wanted, seed)
        if start_alike(network, own) and not self._shuffles:
            notes.append("members start alike, and only other randomness in training tells them apart")

        # Make the members. The trunk runs once for all tails, which is worth a plan.
        code = PlainCode.of(network.module, network.output)
        tensors = Stacked.of_network(network, own)
        members = Members(Fixed(self.members), tensors, code, lowers=True)

        # Record what happened.
        rows = tuple(_row(choice, self.members, self.start) for choice in choices)
        return Built(members, rows, tuple(notes))

    def _split(self, choices: Sequence[LayerChoice]) -> list[LayerChoice]:
        """Return the choices with the layers of the trunk left.

        Raises:
            ConversionError: The tail has nothing to train, or shares a tensor with the trunk.
        """
        # A share of the trunk counts only layers that could be converted.
        layers = [choice.site for choice in choices if choice.method]
        trunk = self._trunk(choices, layers)
        tail = [site for site in layers if site not in trunk]
        if not any(site.trained for site in tail):
            raise ConversionError(
                f"the tail must have a layer to train, got trunk={self.trunk!r}, which leaves "
                f"{', '.join(map(str, tail)) or 'none'}. Make the trunk smaller."
            )
        _refuse_tied(trunk, tail)
        split = []
        for choice in choices:
            if choice.site in trunk:
                choice = replace(choice, method=None, reason=choice.reason or TRUNK)
            split.append(choice)
        return split

    def _trunk(
        self,
        choices: Sequence[LayerChoice],
        layers: Sequence[Site],
    ) -> set[Site]:
        """Return the layers of the trunk, in no order.

        Args:
            choices: All layers, among which patterns may name any.
            layers: Those that could be converted, of which the trunk may be a share.
        """
        if isinstance(self.trunk, int | float):
            return set(layers[: int(self.trunk * len(layers))])
        sites = [choice.site for choice in choices]
        return set(select(sites, self.trunk, TRUNK))


def _refuse_tied(trunk: Iterable[Site], tail: Iterable[Site]) -> None:
    """Raise if a layer of the trunk and one of the tail hold the same tensor."""
    # One tensor cannot be shared by all members and belong to each of them.
    shared: dict[str, Site] = {}
    for site in trunk:
        shared |= dict.fromkeys(site.tied, site)
    for site in tail:
        for name in shared.keys() & set(site.tied):
            raise ConversionError(
                f"tied layers must be on one side, got {shared[name]} in the trunk and {site} in the tail, "
                f"which both hold {name}. Name the trunk's layers with trunk=(...)."
            )


def _row(choice: LayerChoice, members: int, start: str) -> LayerRecord:
    """Record whether a layer is shared or copied.

    Args:
        choice: The layer; one of the trunk has no method.
        members: How many copies there are.
        start: How they start.
    """
    site = choice.site
    if choice.method is None:
        return LayerRecord(site.names, site.kind, "shared", choice.reason)
    if not site.trained and site.parameters:
        return LayerRecord(site.names, site.kind, f"shared, with {members} running statistics", "frozen")
    return LayerRecord(site.names, site.kind, f"{members} copies, start {start}")
