"""Early exits: a network that answers at several depths, all of which are members.

Teerapittayanon, McDanel & Kung, "BranchyNet: fast inference via early exiting from deep neural networks",
ICPR 2016; as an ensemble: Qendro, Campbell, Lio & Mascolo, "Early exit ensembles for uncertainty
quantification", ML4H 2021; the case N = 1 of the Single Architecture Ensemble.

A small head reads the value after each block. All heads are trained together, with equal weights, and their
predictions are averaged.

    L = 1/D Σ_j ℓ(f_j(x), y)                                                     (1)

    symbol   here
    D        exits, the network's own output among them
    f_j      row j

Cost: one network and D − 1 heads; less where `predict(x, exit_when=...)` stops samples early.
Deviations: heads are those of the Single Architecture Ensemble; calibration fits the weights of exits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from pluribus.axes import DEPTHS, Between
from pluribus.mechanisms.exits.pairs import HEADS, build_exits, check_where
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import MOST_MEMBERS
from pluribus.settings import setting


@dataclass(frozen=True)
class EarlyExit(Method):
    """One network with exits at several depths.

    Args:
        exits: How many, the network's own output among them, evenly spread over the places that are found;
            at least 1, which is the network itself. None is all.
        where: Names or patterns of the modules to exit after; None finds the ends of blocks or stages.
        fit_weights: Fit how much each exit counts on the validation data, when the ensemble is calibrated;
            shrunk towards equal weights. False leaves weak exits at full weight, as the papers do.
        heads: Of images inside of the network: `narrow` ones have at most the channels of its last image,
            `wide` ones as many as its last layer reads, as before version 2 of these settings.

    Example:
        >>> layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()) for _ in range(3)]
        >>> model = torch.nn.Sequential(*layers, torch.nn.Linear(8, 2))
        >>> pluribus.convert(model, EarlyExit()).eval()(torch.zeros(7, 8)).shape
        torch.Size([3, 7, 2])
    """

    exits: int | None = setting(None, kind=int, at_least=1, at_most=MOST_MEMBERS, search=Between(2, DEPTHS))
    where: str | tuple[str, ...] | None = None
    fit_weights: bool = setting(True)
    heads: str = setting("narrow", choices=HEADS)

    version: ClassVar[int] = 3
    added: ClassVar[Mapping[int, Mapping[str, Any]]] = MappingProxyType(
        {2: {"heads": "wide"}, 3: {"fit_weights": False}}
    )
    own_weights: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_where(self)

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        # Without `learnt` all exits have equal weights, as in Eq. (1).
        return build_exits(network, choices, seed, depths=self.exits, where=self.where, heads=self.heads)
