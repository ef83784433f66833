"""Packed-Ensembles: M networks of α/M times the width, for the cost of about one.

Laurent, Lafage, Tartaglione, Daniel, Martinez, Bursuc & Franchi, "Packed-Ensembles for efficient
uncertainty estimation", ICLR 2023.

The paper widens a network α times and cuts all of its layers but the first into M groups, which are
M separate networks (Eq. 4). Here they are M networks from the start: nothing can leak from one into
another, and norms, attention and concatenation need no thought. Inside each, convolutions have γ groups.

    p(y | x) = 1/M Σ_m p(y | x, ω ∘ mask_m)                                                 (4)
    parameters of an inner layer: α²/(M γ) of the single network's                     (§3.2)
    ẑ(c) = Σ_k ω(c, k) mask(k, c) h(k),    mask of density p = 1/(M γ)                      (6)
    D_KL(z, ẑ) ≤ ½ {p + 1/p − 2 + p(1−p) Σ ω²μ²/σ² + [(1−p) μ_z]²/(p σ²)}                   (7)

    symbol   here
    M        members
    α        alpha; a member's widths are int(width α/M)
    γ        gamma; lowered until every group reads min_channels inputs
    p        mask_density(), the share of weights that are left
    σ², μ_z  of the layer's output, from those of its independent inputs

Cost: M networks of α/M times the width: α²/(M γ) times the single network, more for its first and last layer.
Deviations: linear layers have no groups inside a member (γ), nor has the last convolution, as in the
networks of the paper's tables; widths are rounded up to a multiple of γ, where the authors' code
rounds to a number that γ need not divide. Frozen and excluded layers keep their widths and are shared.
The authors train the mean of the losses, which is 1/M of the gradient that their Eq. (4) of independent
networks means; here losses are summed (`reduction`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.index import Fixed
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.orders import assign_orders, count_orders
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.members.reduction import REDUCTIONS, reduce_losses, trains_apart
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.members.tree import stack_modules
from pluribus.mechanisms.network.dry_run import seeded
from pluribus.mechanisms.network.fresh import fresh_modules
from pluribus.mechanisms.network.network import Network, built
from pluribus.mechanisms.widths.conv_groups import inner_convolutions, multiples, regroup
from pluribus.mechanisms.widths.groups import Widths, read_widths
from pluribus.mechanisms.widths.resize import resize
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import MOST_CHANNELS, MOST_MEMBERS
from pluribus.recipe import Recipe
from pluribus.settings import setting

WIDEST = 1000
"""Greatest alpha; the paper's are 1 to 4, and a network grows with the square."""


def mask_density(members: int, gamma: int) -> float:
    """Return the share p of a wide layer's weights that its groups leave."""
    return 1 / (members * gamma)


def sparsity_divergence(weight: Tensor, mean: Tensor, variance: Tensor, density: float) -> Tensor:
    """Compute D_KL of a linear layer's output from that of its randomly masked version, `[out]`, in nats.

    Args:
        weight: ω, `[out, in]`.
        mean: μ of the inputs, `[in]`, which are Gaussian and independent.
        variance: Σ(k, k) of the inputs, `[in]`.
        density: p, the share of the weights that is left, in (0, 1].
    """
    p, output_mean, output_variance, power = _moments(weight, mean, variance, density)
    masked = p * (output_variance + (1 - p) * power)  # Eq. (15)
    distance = ((1 - p) * output_mean) ** 2  # Eq. (14)
    return ((masked / output_variance).log() + (output_variance + distance) / masked - 1) / 2


def sparsity_bound(weight: Tensor, mean: Tensor, variance: Tensor, density: float) -> Tensor:
    """Compute the bound of Proposition C.1 on `sparsity_divergence`, `[out]`."""
    p, output_mean, output_variance, power = _moments(weight, mean, variance, density)
    spread = p * (1 - p) * power / output_variance
    shift = ((1 - p) * output_mean) ** 2 / (p * output_variance)
    return (p + 1 / p - 2 + spread + shift) / 2  # Eq. (7)


def _moments(
    weight: Tensor, mean: Tensor, variance: Tensor, density: float
) -> tuple[float, Tensor, Tensor, Tensor]:
    """Return p, the mean and variance of the outputs, and Σ ω²μ² of each output."""
    squares = weight.square()
    return density, weight @ mean, squares @ variance, squares @ mean.square()  # Eqs. (8), (10)


@dataclass(frozen=True)
class PackedEnsembles(Method):
    """M narrow networks with weights of their own.

    Args:
        members: How many networks, at least 1.
        alpha: How wide all of them together are, above 0; each has `alpha / members` times the width.
        gamma: Groups inside the convolutions of a member, at least 1; may differ from layer to layer.
        min_channels: Fewest inputs of a group, at least 1; with fewer there are fewer groups.
        reduction: Of the members' losses: `sum` trains each member as if it were alone; `mean`, as in the
            authors' code, divides its gradient by the number of members; `auto` is the sum unless members
            share trained tensors.
        shuffle_members: Whether each member goes through the training set in an order of its own. A batch
            for `loss` is then a batch for the first member, followed by one for the second, and so on.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> ensemble = pluribus.convert(model, PackedEnsembles(members=4, alpha=2))
        >>> ensemble(torch.zeros(7, 3)).shape, ensemble.member(0)[0].out_features
        (torch.Size([4, 7, 2]), 4)
    """

    members: int = setting(4, at_least=1, at_most=MOST_MEMBERS, remedy="Use members=1 for a single network.")
    alpha: float = setting(2.0, above=0, at_most=WIDEST)
    gamma: int = setting(1, at_least=1, at_most=MOST_CHANNELS)
    min_channels: int = setting(64, at_least=1, at_most=MOST_CHANNELS)
    reduction: str = setting("auto", choices=REDUCTIONS)
    shuffle_members: bool = setting(False)

    version: ClassVar[int] = 2
    per_layer: ClassVar[frozenset[str]] = frozenset({"gamma"})

    @classmethod
    def upgrade(cls, values: dict[str, Any], version: int) -> dict[str, Any]:
        # Version 1 had no setting, and trained the mean.
        return values if version > 1 else {"reduction": "mean"} | values

    @property
    def factor(self) -> float:
        """Return a member's width as a share of the network's."""
        return self.alpha / self.members

    @property
    def data_orders(self) -> int:
        return count_orders(self.members, self.shuffle_members)

    def assign(self, batch: int, rows: Sequence[Any], progress: float) -> list[Tensor] | None:
        return assign_orders(batch, rows, self.shuffle_members)

    def combine(self, losses: Tensor, shares: Tensor, members: AnyMembers, progress: float) -> Tensor:
        return reduce_losses(losses, shares, self.reduction, members)

    def recipe(self) -> Recipe:
        # Narrow members learn more slowly: three times the steps, about the training of four networks, took
        # the NLL from 1.33 to 1.23 on CIFAR-10 at 16 x 16, from .016 to -.017 on kin8nm.
        return Recipe(longer=3.0)

    def is_separate(self, members: AnyMembers) -> bool:
        return trains_apart(self.reduction, members)

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        # Find the layers that each member has for itself.
        names: set[str] = set()
        for choice in choices:
            if isinstance(choice.method, PackedEnsembles):
                names.update(choice.site.trained, choice.site.statistics)

        # Make the tensors: narrow the network, and draw it for each member.
        before = _shapes(network)
        groups, notes = self._narrow(network, choices, seed)
        modules, redrawn = fresh_modules(network, self.members, seed)
        own = stack_modules(modules, names)
        if redrawn:
            notes.append(f"bare parameters redrawn with their mean and deviation: {', '.join(redrawn)}")
        notes += [f"gradients of {name} are dense" for name in network.allow_other_weights(own)]
        tensors = Stacked.of_network(network, own)

        # Make the members.
        code = PlainCode.of(network.module, network.output)
        members = Members(Fixed(self.members), tensors, code)

        # Record what happened.
        after = _shapes(network)
        rows = tuple(_row(choice, self.members, before, after, groups) for choice in choices)
        return Built(members, rows, tuple(notes))

    def _narrow(
        self, network: Network, choices: Sequence[LayerChoice], seed: int
    ) -> tuple[dict[str, int], list[str]]:
        """Put the narrow module into `network`; return the groups of its convolutions, and notes."""
        gammas: dict[str, int] = {}
        for choice in choices:
            if isinstance(choice.method, PackedEnsembles):
                gammas |= dict.fromkeys(choice.site.names, choice.method.gamma)
        if network.by_width is not None:
            self._build_narrow(network, partial(network.by_width, self.factor), gammas, seed)
            return {}, []
        # Nothing changes, so networks whose widths cannot be read are fine here.
        if self.factor == 1 and set(gammas.values()) == {1}:
            network.become(network.module)
            return {}, []
        widths = read_widths(network, _kept(choices))
        names = [name for name, *_ in inner_convolutions(widths)]
        divisors = multiples(widths, self.factor, gammas, self.min_channels)
        module = resize(network, self.factor, divisors, widths)
        groups = regroup(module, names, gammas, self.min_channels)
        network.become(module)
        return groups, _notes(widths)

    def _build_narrow(
        self, network: Network, factory: Callable[[], nn.Module], gammas: Mapping[str, int], seed: int
    ) -> None:
        """Put the module of a factory by width into `network`."""
        if set(gammas.values()) != {1}:
            raise ConversionError(
                "gamma must be 1 for a factory by width, which builds groups itself, got "
                f"{max(gammas.values())}. Set gamma=1 and build convolutions with groups."
            )
        with seeded(seed):
            module = built(factory)
        expected, came = set(network.tensors()), set(Network(module).tensors())
        if expected != came:
            raise ConversionError(
                "the factory must build the same layers at every width, got "
                f"{', '.join(sorted(expected ^ came)[:5])} at some widths alone. "
                "Let the width change sizes only."
            )
        network.become(module, factory)


def _shapes(network: Network) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a network's tensors by name."""
    return {name: tuple(tensor.shape) for name, tensor in network.tensors().items()}


def _kept(choices: Sequence[LayerChoice]) -> set[str]:
    """Return the names of the tensors that members share: frozen ones, and those of layers that are left.

    Their sizes stay.
    """
    shared: set[str] = set()
    for choice in choices:
        site = choice.site
        trained = {*site.trained, *site.statistics} if choice.method else set()
        shared |= {*site.parameters, *site.statistics} - trained
    return shared


def _notes(widths: Widths) -> list[str]:
    """Return notes on a network without inner widths, and on buffers that lose channels."""
    if not widths.groups:
        return ["there is no inner width, so every member is a whole network"]
    buffers = {name for name, _ in widths.network.module.named_buffers()}
    sliced = {name for group in widths.groups for name, _ in group.axes if name in buffers}
    # Running statistics start anew, so that nothing of value is cut off.
    sliced = {name for name in sliced if name.rsplit(".", 1)[-1] not in ("running_mean", "running_var")}
    return [f"{name} has the values of its first channels" for name in sorted(sliced)]


def _row(
    choice: LayerChoice,
    members: int,
    before: Mapping[str, tuple[int, ...]],
    after: Mapping[str, tuple[int, ...]],
    groups: Mapping[str, int],
) -> LayerRecord:
    """Record how many copies of a layer there are, and how its sizes changed."""
    site = choice.site
    if not isinstance(choice.method, PackedEnsembles):
        return LayerRecord(site.names, site.kind, "shared", choice.reason)
    if not site.trained and site.parameters:
        return LayerRecord(site.names, site.kind, f"shared, with {members} running statistics", "frozen")
    became = f"{members} copies"
    changed = [name for name in site.trained if before[name] != after[name]]
    if changed:
        name = changed[0]
        became += f", {name.rsplit('.', 1)[-1]} {list(before[name])} to {list(after[name])}"
    if groups.get(site.name, 1) > 1:
        became += f", {groups[site.name]} groups"
    return LayerRecord(site.names, site.kind, became)
