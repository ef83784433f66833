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
    α        alpha, or what cost finds; a member's widths are int(width α/M)
    γ        gamma; lowered until every group reads min_channels inputs, 1 in the first convolution of a block
    p        mask_density(), the share of weights that are left
    σ², μ_z  of the layer's output, from those of its independent inputs

Cost: M networks of α/M times the width: α²/(M γ) times the single network, more for its first and last layer;
`cost` finds the α with a given number of multiply-adds.
The paper has no groups in the first convolution of a residual block (App. B); its WideResNets have, by their
counts (`gamma_first`).
Deviations: linear layers have no groups inside a member (γ), nor has the last convolution, as in the
networks of the paper's tables; widths are rounded up to a multiple of γ, where the authors' code
rounds to a number that γ need not divide. Frozen and excluded layers keep their widths and are shared.
The authors train the mean of the losses, which is 1/M of the gradient that their Eq. (4) of independent
networks means; here losses are summed (`reduction`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from pluribus.axes import Between, OneOf
from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError, SettingError
from pluribus.mechanisms.graph.cost import cost as count_cost
from pluribus.mechanisms.graph.residual_blocks import find_first_in_blocks
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.index import Fixed
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.orders import assign_orders, count_orders
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.members.reduction import REDUCTIONS, reduce_losses, trains_apart
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.members.tree import fresh_stack
from pluribus.mechanisms.network.dry_run import dry_run, seeded
from pluribus.mechanisms.network.network import Network, built
from pluribus.mechanisms.widths.conv_groups import inner_convolutions, multiples, regroup
from pluribus.mechanisms.widths.groups import Widths, read_widths
from pluribus.mechanisms.widths.resize import resize
from pluribus.mechanisms.widths.solve_cost import solve_width
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
        cost: In place of `alpha`, the multiply-adds of all members together as a multiple of the network's,
            above 0. `convert` counts them on the example and finds the largest widths that cost no more;
            `ensemble.method` has the `alpha` that it found.
        gamma_first: Whether the first convolution of a residual block has `gamma` groups too. The paper's
            ResNets have none there, its WideResNets have.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> ensemble = pluribus.convert(model, PackedEnsembles(members=4, alpha=2))
        >>> ensemble(torch.zeros(7, 3)).shape, ensemble.member(0)[0].out_features
        (torch.Size([4, 7, 2]), 4)
    """

    members: int = setting(
        4,
        at_least=1,
        at_most=MOST_MEMBERS,
        remedy="Use members=1 for a single network.",
        search=Between(2, 8),
    )
    alpha: float = setting(2.0, above=0, at_most=WIDEST, search=Between(1.0, 3.0))
    gamma: int = setting(1, at_least=1, at_most=MOST_CHANNELS, search=OneOf((1, 2)))
    min_channels: int = setting(64, at_least=1, at_most=MOST_CHANNELS)
    reduction: str = setting("auto", choices=REDUCTIONS)
    shuffle_members: bool = setting(False)
    cost: float | None = setting(None, kind=float, above=0, at_most=WIDEST)
    gamma_first: bool = setting(False)

    version: ClassVar[int] = 3
    per_layer: ClassVar[frozenset[str]] = frozenset({"gamma"})

    @classmethod
    def upgrade(cls, values: dict[str, Any], version: int) -> dict[str, Any]:
        # Version 1 had no setting, and trained the mean. Version 2 had groups in all convolutions.
        before = {"reduction": "mean"} if version == 1 else {}
        return values if version > 2 else before | {"gamma_first": True} | values

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

    def follow_network(self, network: Network, choices: Sequence[LayerChoice]) -> dict[str, Any]:
        if self.cost is None:
            return {}
        inputs = network.example

        def count(module: nn.Module) -> int:
            with dry_run(module, training=False):
                return count_cost(module, *inputs.copy().args, **inputs.copy().keywords).multiply_adds

        one = count(network.module)
        if not one:
            raise ConversionError("cost needs a network with multiply-adds, got none. Give alpha instead.")

        def cost_of(alpha: float) -> float:
            return self.members * count(replace(self, alpha=alpha)._narrow(network, choices, 0)[0]) / one

        # The law of inner layers; the first and last ones cost more, so that the search ends below it.
        start = (self.cost * self.members * self.gamma) ** 0.5
        try:
            return {"alpha": solve_width(cost_of, self.cost, start, WIDEST), "cost": None}
        except ValueError as error:
            raise SettingError(
                f"cost must be at least {error}, the multiply-adds of {self.members} members of the least "
                f"width that was tried, got {self.cost}. Have fewer members."
            ) from None

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        # Find the layers that each member has for itself.
        names: set[str] = set()
        for choice in choices:
            if isinstance(choice.method, PackedEnsembles):
                names.update(choice.site.trained, choice.site.statistics)

        # Make the tensors: narrow the network, and draw it for each member.
        before = _shapes(network)
        module, groups, notes, factory = self._narrow(network, choices, seed)
        network.become(module, factory)
        own, redrawn = fresh_stack(network, self.members, seed, names)
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
    ) -> tuple[nn.Module, dict[str, int], list[str], Callable[[], nn.Module] | None]:
        """Return the narrow module, the groups of its convolutions, notes, and what built it if anything."""
        gammas = self._gammas(network, choices)
        if network.by_width is not None:
            factory = partial(network.by_width, self.factor)
            return self._build_narrow(network, factory, gammas, seed), {}, [], factory
        # Nothing changes, so networks whose widths cannot be read are fine here.
        if self.factor == 1 and set(gammas.values()) == {1}:
            return network.module, {}, [], None
        widths = read_widths(network, _kept(choices))
        names = [name for name, *_ in inner_convolutions(widths)]
        divisors = multiples(widths, self.factor, gammas, self.min_channels)
        module = resize(network, self.factor, divisors, widths)
        groups = regroup(module, names, gammas, self.min_channels)
        return module, groups, _notes(widths), None

    def _gammas(self, network: Network, choices: Sequence[LayerChoice]) -> dict[str, int]:
        """Return the wanted groups of each layer by its names, 1 where a residual block begins."""
        whole: set[str] = set()
        # A factory builds groups itself, and without groups there is nothing to leave out.
        if self.gamma > 1 and not self.gamma_first and network.by_width is None:
            whole = find_first_in_blocks(network)
        gammas: dict[str, int] = {}
        for choice in choices:
            if not isinstance(choice.method, PackedEnsembles):
                continue
            # What the user overrides is as the user wants it.
            first = not choice.overridden and not whole.isdisjoint(choice.site.parameters)
            gammas |= dict.fromkeys(choice.site.names, 1 if first else choice.method.gamma)
        return gammas

    def _build_narrow(
        self, network: Network, factory: Callable[[], nn.Module], gammas: Mapping[str, int], seed: int
    ) -> nn.Module:
        """Return the module of a factory by width."""
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
        return module


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
