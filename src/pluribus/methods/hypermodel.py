"""Hypermodels: a linear map makes the weights of a member from a random index.

Dwaracherla et al., "Hypermodels for exploration", ICLR 2020.

The index is a short vector of normal numbers. Each of its entries has a set of weights of its own, and a
member's weights are their sum. A fixed random network, made from the same index, is added as a prior.

    θ(z) = θ_0 + Σ_k z_k θ_k,    z ~ N(0, I/d)                                    (1)
    f_z(x) = f(x; θ(z)) + β f(x; φ(z)),    φ_k drawn once, no gradient            (2)

    symbol   here
    d        dimension
    θ_0      the network's own weights
    θ_k      directions.<name>, [d, ...]
    β        prior_scale

Cost: 1 + d networks to store, twice that with a prior; one pass for each draw, two with a prior.
Deviations: the prior is a linear hypermodel of random networks, where the authors split the index among the
layers of a random-feature network.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from pluribus.axes import Between, OneOf
from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError
from pluribus.mechanisms.graph.first_and_last import find_ends
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.drawn import Drawn, normal_numbers
from pluribus.mechanisms.members.index import Seeds
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.options import draw_options
from pluribus.mechanisms.members.prior import AnyMembers, WithPrior
from pluribus.mechanisms.members.tree import named_tensors, plant
from pluribus.mechanisms.network.dry_run import ALIKE, derived_seed
from pluribus.mechanisms.network.fresh import PRIOR_SEED
from pluribus.mechanisms.network.layers import is_norm, there_are
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import LARGEST, MOST_DRAWS, MOST_MEMBERS
from pluribus.settings import setting

# A bias of zeros has no scale of its own.
LEAST_SCALE = 0.1
TUNING_DEVIATION = 0.05
"""Greatest start of θ_k with which a trained network still predicts as before, nearly."""


def combine_directions(start: Tensor, directions: Tensor, index: Tensor) -> Tensor:
    """Compute Eq. (1) of one tensor.

    Args:
        start: θ_0.
        directions: θ_k, `[d, ...]`.
        index: z, `[d]`.
    """
    combined: Tensor = start + torch.tensordot(index, directions, 1)
    return combined


class Directions(Drawn):
    """Weights that are a linear function of an index.

    Args:
        network: Whose tensors these are; its weights are θ_0.
        directions: By name, θ_k of the weights that vary, `[d, ...]`.
        learnt: Whether anything is trained.
    """

    def __init__(self, network: Network, directions: dict[str, Tensor], learnt: bool) -> None:
        super().__init__(network, list(directions))
        self.dimension = len(next(iter(directions.values())))
        self.directions = nn.Module()
        for name, value in directions.items():
            plant(self.directions, name, nn.Parameter(value, requires_grad=learnt))
        if not learnt:
            self.shared.requires_grad_(False)

    def draw(self, row: int | None) -> dict[str, Tensor]:
        """Return the weights of a seed, Eq. (1)."""
        shared, every = self.parts()[0], named_tensors(self.directions)
        # One index moves all tensors together.
        first = next(iter(every.values()))
        index = normal_numbers([self.dimension], row, 0, first) / math.sqrt(self.dimension)
        return {
            name: combine_directions(shared[name], directions, index.to(directions))
            for name, directions in every.items()
        }


@dataclass(frozen=True)
class Hypermodel(Method):
    """Members whose weights are a linear function of a random index.

    Args:
        draws: How many draws are kept for prediction, at least 1.
        dimension: d of the index, at least 1.
        layers: `all` varies every layer but norms, `last` the last layer alone.
        deviation: Where θ_k start, as a share of each tensor's root mean square, at least 0.
        prior_scale: β of the fixed random network, at least 0; 0 is none.
        train_draws: How many draws in a training step, at least 1.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> ensemble = pluribus.convert(model, Hypermodel(draws=5)).eval()
        >>> ensemble(torch.zeros(7, 3)).shape
        torch.Size([5, 7, 2])
    """

    draws: int = setting(16, at_least=1, at_most=MOST_DRAWS, search=OneOf((4, 8, 16)))
    dimension: int = setting(10, at_least=1, at_most=MOST_MEMBERS, search=Between(4, 20))
    layers: str = setting("all", choices=("all", "last"))
    deviation: float = setting(0.5, at_least=0, at_most=LARGEST, search=Between(0.1, 1.0))
    prior_scale: float = setting(0.0, at_least=0, at_most=LARGEST)
    train_draws: int = setting(4, at_least=1, at_most=MOST_DRAWS)

    @property
    def on_trained(self) -> str:
        # A prior changes every prediction.
        if self.prior_scale or self.deviation > TUNING_DEVIATION:
            return "retrain"
        return "approximate" if self.deviation else "kept"

    def for_trained(self) -> Self:
        return replace(self, deviation=TUNING_DEVIATION) if self.deviation == type(self).deviation else self

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        """Return members that are named by seeds of their index."""
        names = self._names(network, choices)
        if not names:
            raise ConversionError(
                "Hypermodel must have a trained layer besides norms, got none. "
                + there_are([choice.site for choice in choices])
            )
        network.allow_other_weights(names)
        held, directions = network.tensors(), {}
        generator = torch.Generator().manual_seed(derived_seed(seed, 0))
        for name in names:
            scale = self.deviation * max(held[name].detach().square().mean().sqrt().item(), LEAST_SCALE)
            shape = (self.dimension, *held[name].shape)
            directions[name] = scale * torch.randn(shape, generator=generator, **ALIKE).to(held[name])
        members: AnyMembers = self._members(network, Directions(network, directions, True), seed)
        if self.prior_scale:
            assert isinstance(members, Members)
            members = WithPrior(members, self._prior(network, [*names], seed), self.prior_scale)
        layers = tuple(_record(choice, names) for choice in choices)
        return Built(members, layers)

    def _names(self, network: Network, choices: Sequence[LayerChoice]) -> dict[str, None]:
        """Return the names of the weights that vary."""
        sites = [choice.site for choice in choices if choice.method and not is_norm(choice.site)]
        if self.layers == "last":
            last = find_ends(network, sites)[1]
            sites = [] if last is None else [last]
        return dict.fromkeys(name for site in sites for name in site.trained)

    def _prior(self, network: Network, names: Sequence[str], seed: int) -> Members:
        """Return fixed random networks, one for each entry of the index, Eq. (2)."""
        wanted = dict.fromkeys(names, (self.dimension, "fresh"))
        drawn, _ = draw_options(network, wanted, seed + PRIOR_SEED)
        tensors = Directions(network, drawn, False)
        with torch.no_grad():
            # A prior knows nothing, and so nothing of the network's own weights.
            for name in names:
                tensors.parts()[0][name].zero_()
        return self._members(network, tensors, seed)

    def _members(self, network: Network, tensors: Directions, seed: int) -> Members:
        code = PlainCode.of(network.module, network.output)
        return Members(Seeds(self.draws, self.train_draws, seed), tensors, code)


def _record(choice: LayerChoice, names: dict[str, Any]) -> LayerRecord:
    site = choice.site
    if any(name in names for name in site.trained):
        return LayerRecord(site.names, site.kind, "a linear function of the index")
    reason = "not chosen" if site.parameters else "no parameters"
    return LayerRecord(site.names, site.kind, "shared", choice.reason or reason)
