"""Multi-input massive multi-output: several samples enter together, and each is answered at every depth.

Ferianc & Rodrigues, "MIMMO: multi-input massive multi-output neural network", CVPR workshops 2023; the case
K = D of the Single Architecture Ensemble.

How much each input prefers a depth is a categorical distribution, learnt by variational inference together
with the weights; predictions are averaged by it.

    L = Σ_i Σ_j θ_ij ℓ(f_ij(x_1, …, x_N), y_i) + 1/|D| Σ_i KL(θ_i ‖ uniform)      (1)
    θ_i = softmax(l_i),    KL(θ_i ‖ uniform) = log D − H(θ_i)                     (2)

    symbol   here
    N        inputs
    l_ij     Pairs.logits, zero at first
    θ_ij     Pairs.preferences
    |D|      dataset_size, of ensemble.loss

Cost: one network with a wider first and last layer, and a head for each depth.
Deviations: every depth has a head of its own, where the paper shares the last layer; the expectation of (1)
is computed exactly. By default half of a batch is equal in all slots, and calibration fits how much each
member counts; `input_repetition=0` and `fit_weights=False` are the paper's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor

from pluribus.axes import Between
from pluribus.mechanisms.exits.pairs import (
    HEADS,
    Pairs,
    build_exits,
    check_where,
    depth_divergence,
    preferences,
    slot_orders,
)
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import MOST_MEMBERS
from pluribus.recipe import Recipe
from pluribus.settings import setting


@dataclass(frozen=True)
class MIMMO(Method):
    """One network for several samples at once, each answered at every depth.

    Args:
        inputs: How many samples enter together, at least 1.
        where: Names or patterns of the modules to exit after; None finds the ends of blocks or stages.
        input_repetition: Share of a training batch that is the same in all slots, in [0, 1].
        batch_repetition: How often a training batch is repeated, at least 1.
        start: Of the first and last layer: `fresh` initialises them, `copy` keeps the network's weights.
        fit_weights: Fit how much each exit counts on the validation data, when the ensemble is calibrated;
            shrunk towards equal weights. False leaves the learnt preferences, as the paper does.
        heads: Of images inside of the network: `narrow` ones have at most the channels of its last image,
            `wide` ones as many as its last layer reads, as before version 2 of these settings.

    Example:
        >>> layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()) for _ in range(3)]
        >>> model = torch.nn.Sequential(*layers, torch.nn.Linear(8, 2))
        >>> pluribus.convert(model, MIMMO(inputs=2)).eval()(torch.zeros(7, 8)).shape
        torch.Size([6, 7, 2])
    """

    inputs: int = setting(2, at_least=1, at_most=MOST_MEMBERS, search=Between(2, 4))
    where: str | tuple[str, ...] | None = None
    input_repetition: float = setting(0.5, at_least=0, at_most=1, search=Between(0.0, 1.0))
    batch_repetition: int = setting(2, at_least=1, at_most=MOST_MEMBERS)
    start: str = setting("fresh", choices=("copy", "fresh"))
    fit_weights: bool = setting(True)
    heads: str = setting("narrow", choices=HEADS)

    version: ClassVar[int] = 3
    added: ClassVar[Mapping[int, Mapping[str, Any]]] = MappingProxyType(
        {2: {"heads": "wide"}, 3: {"input_repetition": 0.0, "fit_weights": False}}
    )
    own_weights: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_where(self)

    def recipe(self) -> Recipe:
        # Slots share the network and learn more slowly than it does alone: twice the steps took the
        # validation NLL from .085 to .066 on digits, where one network has .066 after the usual 1000.
        return Recipe(longer=2.0) if self.inputs > 1 else Recipe()

    def assign(self, batch: int, rows: Sequence[Any], progress: float) -> list[Tensor]:
        orders = slot_orders(batch, self.inputs, self.input_repetition, self.batch_repetition)
        return [orders[slot] for slot, _ in rows]

    def combine(self, losses: Tensor, shares: Tensor, members: AnyMembers, progress: float) -> Tensor:
        index = members.index
        assert isinstance(index, Pairs)
        # Outside of training, and for some members alone, the preferences of those that ran are the weights.
        if not members.training or index.chosen is not None:
            return index.mean(losses)
        return (preferences(index.logits, 1.0).flatten() * losses).sum()  # Eq. (1)

    def penalty(self, members: AnyMembers, batch: int, dataset_size: int, progress: float) -> Tensor:
        index = members.index
        assert isinstance(index, Pairs)
        return depth_divergence(preferences(index.logits, 1.0)).sum() / dataset_size  # Eq. (2)

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        return build_exits(
            network,
            choices,
            seed,
            inputs=self.inputs,
            where=self.where,
            start=self.start,
            learnt=True,
            heads=self.heads,
        )
