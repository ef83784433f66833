"""Hypermodels: a linear map makes the weights of a member from a random index.

Dwaracherla et al., "Hypermodels for exploration", ICLR 2020.

The index is a short vector of normal numbers. Each of its entries has a set of weights of its own, and a
member's weights are their sum. A fixed random network, made from the same index, is added as a prior.

    θ(z) = θ_0 + Σ_k z_k θ_k,    z ~ N(0, I/d)                                    (1)
    f_z(x) = f(x; θ(z)) + β f(x; φ(z)),    φ_k drawn once, no gradient            (2)

The prior of the authors' code has random features. Each layer has a part of the index to itself, and every
weight is the product of that part with a random direction of length 1:

    φ_l(z) = ⟨u_l, z_l⟩ / √inputs_l,    z = (z_1 … z_L),  |u_l| = 1                (3)

    symbol   here
    d        dimension
    θ_0      the network's own weights
    θ_k      directions.<name>, [d, ...]
    β        prior_scale
    u_l      random_features()

Cost: 1 + d networks to store, twice that with a prior; one pass for each draw, two with a prior.
Deviation: there is no prior by default. One of another kind is a linear hypermodel of random networks, whose
natural scale is 1.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

import torch
from torch import Generator, Tensor, nn

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
from pluribus.mechanisms.network.layers import is_norm, names_by_layer, there_are
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
        index: z, `[d]`, or those of several members, `[members, d]`.
    """
    combined: Tensor = start + torch.tensordot(index, directions, 1)
    return combined


def random_features(shape: Sequence[int], places: Sequence[int], size: int, generator: Generator) -> Tensor:
    """Return random directions of a tensor's entries by Eq. (3), `[d, ...]`.

    Args:
        shape: Of the tensor; a weight has its inputs behind the first axis, and a bias has none.
        places: Of the index that the tensor's layer has to itself.
        size: d.
        generator: Of the directions.
    """
    drawn = torch.randn((len(places), *shape), generator=generator, **ALIKE)
    drawn = drawn / drawn.norm(dim=0) / math.sqrt(math.prod(shape[1:]))
    directions = torch.zeros((size, *shape))
    directions[list(places)] = drawn
    return directions


def split_index(size: int, layers: int) -> list[list[int]]:
    """Return the part of an index that each layer has: of nearly equal lengths, or all of a short index."""
    if size < layers:
        return [[*range(size)]] * layers
    return [part.tolist() for part in torch.arange(size).tensor_split(layers)]


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
        return self._at(self._index(row))

    def draw_all(self, rows: Sequence[int | None]) -> dict[str, Tensor]:
        """Return the weights of several seeds, `[rows, ...]`, by one product for each tensor."""
        return self._at(torch.stack([self._index(row) for row in rows]))

    def _index(self, row: int | None) -> Tensor:
        """Return z of a seed; one index moves all tensors together."""
        first = next(iter(named_tensors(self.directions).values()))
        return normal_numbers([self.dimension], row, 0, first) / math.sqrt(self.dimension)

    def _at(self, index: Tensor) -> dict[str, Tensor]:
        """Return the weights of an index, or of several."""
        shared = self.parts()[0]
        return {
            name: combine_directions(shared[name], directions, index.to(directions))
            for name, directions in named_tensors(self.directions).items()
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
        prior: `random_features` is the authors' prior, whose layers have parts of the index of their own, and
            whose β is 5. `networks` is a linear hypermodel of random networks, larger, and with a β of 1.
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
    prior: str = setting("random_features", choices=("networks", "random_features"))
    train_draws: int = setting(4, at_least=1, at_most=MOST_DRAWS)

    version: ClassVar[int] = 2
    added: ClassVar[Mapping[int, Mapping[str, Any]]] = MappingProxyType({2: {"prior": "networks"}})

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
        layers = self._layers(network, choices)
        names = dict.fromkeys(name for layer in layers for name in layer)
        if not names:
            raise ConversionError(
                "Hypermodel must have a trained layer besides norms, got none. "
                + there_are([choice.site for choice in choices])
            )
        network.allow_other_weights(names)
        directions = self._random_directions(network.tensors(), names, seed)
        members: AnyMembers = self._members(network, Directions(network, directions, True), seed)
        if self.prior_scale:
            assert isinstance(members, Members)
            members = WithPrior(members, self._prior(network, layers, seed), self.prior_scale)
        return Built(members, tuple(_record(choice, names) for choice in choices))

    def _random_directions(
        self, held: Mapping[str, Tensor], names: Iterable[str], seed: int
    ) -> dict[str, Tensor]:
        """Return where θ_k start, by name: normal numbers of a share of each tensor's root mean square."""
        found = dict[str, Tensor]()
        generator = Generator().manual_seed(derived_seed(seed, 0))
        for name in names:
            value = held[name].detach()
            scale = self.deviation * max(value.square().mean().sqrt().item(), LEAST_SCALE)
            shape = (self.dimension, *value.shape)
            found[name] = scale * torch.randn(shape, generator=generator, **ALIKE).to(value)
        return found

    def _layers(self, network: Network, choices: Sequence[LayerChoice]) -> list[tuple[str, ...]]:
        """Return the names of the weights that vary, layer by layer; a tied weight is the first layer's."""
        sites = [choice.site for choice in choices if choice.method and not is_norm(choice.site)]
        if self.layers == "last":
            last = find_ends(network, sites)[1]
            sites = [] if last is None else [last]
        return names_by_layer(sites)

    def _prior(self, network: Network, layers: Sequence[Sequence[str]], seed: int) -> Members:
        """Return the fixed members that are added, Eq. (2) or (3)."""
        names = [name for layer in layers for name in layer]
        if self.prior == "networks":
            # One for each entry of the index.
            wanted = dict.fromkeys(names, (self.dimension, "fresh"))
            drawn, _ = draw_options(network, wanted, seed + PRIOR_SEED)
        else:
            drawn = self._random_features(network, layers, seed + PRIOR_SEED)
        tensors = Directions(network, drawn, False)
        with torch.no_grad():
            # A prior knows nothing, and so nothing of the network's own weights.
            for name in names:
                tensors.parts()[0][name].zero_()
        return self._members(network, tensors, seed)

    def _random_features(
        self, network: Network, layers: Sequence[Sequence[str]], seed: int
    ) -> dict[str, Tensor]:
        """Return the directions of the authors' prior by name of the weight."""
        held, found = network.tensors(), dict[str, Tensor]()
        generator = Generator().manual_seed(derived_seed(seed, 0))
        for names, places in zip(layers, split_index(self.dimension, len(layers)), strict=True):
            for name in names:
                drawn = random_features(held[name].shape, places, self.dimension, generator)
                found[name] = drawn.to(held[name])
        return found

    def _members(self, network: Network, tensors: Directions, seed: int) -> Members:
        code = PlainCode.of(network.module, network.output)
        return Members(Seeds(self.draws, self.train_draws, seed), tensors, code)


def _record(choice: LayerChoice, names: dict[str, Any]) -> LayerRecord:
    site = choice.site
    if any(name in names for name in site.trained):
        return LayerRecord(site.names, site.kind, "a linear function of the index")
    reason = "not chosen" if site.parameters else "no parameters"
    return LayerRecord(site.names, site.kind, "shared", choice.reason or reason)
