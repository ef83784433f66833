"""Deep Ensembles: M networks, initialised and trained independently.

Lakshminarayanan, Pritzel & Blundell, "Simple and scalable predictive uncertainty estimation using
deep ensembles", NeurIPS 2017. Randomized prior networks: Osband, Aslanides & Cassirer, NeurIPS 2018.

Members differ by their random initialisation alone and see the same batches. With a prior, member m
adds the output of a fixed random network of its own:

    L = Σ_m 1/B Σ_b ℓ(f_m(x_b), y_b)                                              (1)
    f_m(x) = f(x; θ_m) + β f(x; φ_m),    φ_m drawn once, no gradient              (2)

    symbol   here
    M        members
    β        prior_scale

Cost: M networks, trained and run; 2 M with priors. Deviation: adversarial training, which the paper
offers as an option, is left out. Frozen parameters of the network stay what they are, shared by all.
Losses are summed, so that every member has the gradient of training alone; where layers that are left out
are trained and shared, the mean is trained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from torch import Tensor

from pluribus.axes import Between
from pluribus.conversion_record import LayerRecord
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.index import Fixed
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.options import draw_options, start_alike
from pluribus.mechanisms.members.orders import assign_orders, count_orders, has_own_orders
from pluribus.mechanisms.members.prior import AnyMembers, WithPrior
from pluribus.mechanisms.members.reduction import REDUCTIONS, reduce_losses, trains_apart
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.network.fresh import PRIOR_SEED
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import LARGEST, MOST_MEMBERS
from pluribus.recipe import COPIES_LR, Recipe
from pluribus.settings import setting


@dataclass(frozen=True)
class DeepEnsembles(Method):
    """M networks with the same architecture and their own weights.

    Args:
        members: How many networks, at least 1.
        prior_scale: Factor of each member's fixed random prior network, at least 0; 0 is none.
        start: `fresh` initialises every member anew, from the model's own initialisers or by calling
            the factory again; `copy` starts all members from the model's weights.
        reduction: Of the members' losses: `sum` trains each member as if it were alone, `mean` divides
            its gradient by the number of members; `auto` is the sum unless members share trained tensors.
        settle_prior: Whether BatchNorm layers of prior networks take the statistics of the first training
            batch, or keep the mean 0 and variance 1 they are made with.
        shuffle_members: Whether each member goes through the training set in an order of its own: a batch is
            then one of each order after the other, and in a loop of one's own it is divided among members.
            None does so where members start alike, which equal batches would leave alike for ever.

    Example:
        >>> ensemble = pluribus.convert(torch.nn.Linear(3, 2), DeepEnsembles(members=5))
        >>> ensemble(torch.zeros(7, 3)).shape
        torch.Size([5, 7, 2])
    """

    members: int = setting(
        4,
        at_least=1,
        at_most=MOST_MEMBERS,
        remedy="Use members=1 for a single network.",
        search=Between(2, 8),
    )
    prior_scale: float = setting(0.0, at_least=0, at_most=LARGEST)
    start: str = setting("fresh", choices=("fresh", "copy"))
    reduction: str = setting("auto", choices=REDUCTIONS)
    settle_prior: bool = setting(True)
    shuffle_members: bool | None = setting(None, kind=bool)

    version: ClassVar[int] = 3
    added: ClassVar[Mapping[int, Mapping[str, Any]]] = {
        2: {"reduction": "mean", "settle_prior": False},
        3: {"shuffle_members": False},
    }
    per_layer: ClassVar[frozenset[str]] = frozenset({"start"})

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
        return reduce_losses(losses, shares, self.reduction, members)  # Eq. (1)

    @property
    def on_trained(self) -> str:
        # A prior changes every prediction.
        return "kept" if self.start == "copy" and not self.prior_scale else "retrain"

    def for_trained(self) -> Self:
        return replace(self, start="copy")

    def recipe(self) -> Recipe:
        return Recipe(tuning_lr=COPIES_LR) if self.start == "copy" else Recipe()

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        # Find the tensors that each member has for itself.
        wanted: dict[str, tuple[int, str]] = {}
        for choice in choices:
            if isinstance(choice.method, DeepEnsembles):
                names = (*choice.site.trained, *choice.site.statistics)
                wanted |= dict.fromkeys(names, (self.members, choice.method.start))

        # Make the tensors.
        own, notes = draw_options(network, wanted, seed)
        if start_alike(network, own) and not self._shuffles:
            notes.append("members start alike, and only other randomness in training tells them apart")

        # Make the members.
        learnt = self._members(network, own)
        members: AnyMembers = learnt
        if self.prior_scale:
            # A prior has every tensor for itself, frozen ones too: nothing of it is ever trained.
            every = dict.fromkeys(network.tensors(), (self.members, "fresh"))
            prior, _ = draw_options(network, every, seed + PRIOR_SEED)
            members = WithPrior(learnt, self._members(network, prior), self.prior_scale)

        # Record what happened.
        rows = tuple(_row(choice, self.members) for choice in choices)
        return Built(members, rows, tuple(notes))

    def _members(self, network: Network, own: Mapping[str, Tensor]) -> Members:
        """Return members with these tensors, `[members, ...]`."""
        tensors = Stacked.of_network(network, own)
        return Members(Fixed(self.members), tensors, PlainCode.of(network.module, network.output))


def _row(choice: LayerChoice, members: int) -> LayerRecord:
    """Record whether a layer is shared or copied."""
    site = choice.site
    if not isinstance(choice.method, DeepEnsembles):
        return LayerRecord(site.names, site.kind, "shared", choice.reason)
    if not site.trained and site.parameters:
        return LayerRecord(site.names, site.kind, f"shared, with {members} running statistics", "frozen")
    return LayerRecord(site.names, site.kind, f"{members} copies, start {choice.method.start}")
