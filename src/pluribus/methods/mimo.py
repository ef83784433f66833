"""Multi-input multi-output: several samples enter one network together, and each gets its own answer.

Havasi, Jenatton, Fort, Liu, Snoek, Lakshminarayanan, Dai & Tran, "Training independent subnetworks for
robust prediction", ICLR 2021; the case K = 1 of the Single Architecture Ensemble, at the last depth.

The first layer is widened for N samples and the last one for N outputs. In training the samples are
independent, so that subnetworks emerge which do not mind each other; in prediction all slots get the same
sample, and their N answers are averaged.

    L = Σ_i ℓ(f_i(x_1, …, x_N), y_i)                                             (1)
    p(y | x) = 1/N Σ_i p(y | f_i(x, …, x))                                       (2)

    symbol   here
    N, M     inputs
    ρ        input_repetition

Cost: one network with a wider first and last layer; frozen, its first layer is that of one network.
Deviations: by default two samples enter, not three, and half of a batch is the same in both slots: a small
network has no room for more. The method's page has the measurements.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from pluribus.axes import Between
from pluribus.mechanisms.exits.pairs import build_exits, slot_orders
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import MOST_MEMBERS
from pluribus.settings import setting


@dataclass(frozen=True)
class MIMO(Method):
    """One network for several samples at once.

    Args:
        inputs: How many samples enter together, at least 1.
        input_repetition: Share of a training batch that is the same in all slots, in [0, 1].
        batch_repetition: How often a training batch is repeated, at least 1.
        start: Of the first and last layer: `fresh` initialises them, `copy` keeps the network's weights, so
            that with the same sample in every slot it computes what it did.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> pluribus.convert(model, MIMO(inputs=3)).eval()(torch.zeros(7, 3)).shape
        torch.Size([3, 7, 2])
    """

    inputs: int = setting(2, at_least=1, at_most=MOST_MEMBERS, search=Between(2, 4))
    input_repetition: float = setting(0.5, at_least=0, at_most=1, search=Between(0.0, 1.0))
    batch_repetition: int = setting(4, at_least=1, at_most=MOST_MEMBERS)
    start: str = setting("fresh", choices=("copy", "fresh"))

    version: ClassVar[int] = 2
    own_weights: ClassVar[bool] = False

    @classmethod
    def upgrade(cls, values: dict[str, Any], version: int) -> dict[str, Any]:
        # Defaults of version 1 were those of the paper.
        return values if version > 1 else {"inputs": 3, "input_repetition": 0.0} | values

    def assign(self, batch: int, rows: Sequence[Any], progress: float) -> list[Tensor]:
        orders = slot_orders(batch, self.inputs, self.input_repetition, self.batch_repetition)
        return [orders[slot] for slot, _ in rows]

    def combine(self, losses: Tensor, shares: Tensor, members: AnyMembers, progress: float) -> Tensor:
        # Only in training does every slot hold a sample of its own, with a loss to sum.
        if not members.training:
            return super().combine(losses, shares, members, progress)
        return losses.sum()  # Eq. (1)

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        return build_exits(network, choices, seed, inputs=self.inputs, depths=1, start=self.start)
