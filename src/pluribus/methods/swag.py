"""SWAG: weights are drawn from a Gaussian that is fitted to the weights at the end of one training.

Maddox, Garipov, Izmailov, Vetrov & Wilson, "A simple baseline for Bayesian uncertainty in deep learning",
NeurIPS 2019.

Training goes on for a while near its optimum, and its weights are looked at now and then. Their mean, their
variance and their last K deviations from the mean are the Gaussian; every draw from it is a member.

    θ̄ = 1/n Σ_i θ_i,    s = 1/n Σ_i θ_i²                                          (moments of n snapshots)
    Σ_diag = max(s − θ̄², 0),    D = (θ_i − θ̄_i) of the last K snapshots
    θ = θ̄ + √α (Σ_diag^½ z_1 / √2 + D z_2 / √(2 (K − 1))),    z_1, z_2 ~ N(0, I)            (1)

    symbol   here
    n        snapshots
    K        rank
    α        scale
    θ̄_i      the mean of the first i snapshots

Cost: one network in training; 2 + K networks to store, and M to predict.
Deviations: snapshots are spread evenly over the end of training, from `start` on, where the paper takes one
after each epoch. The batch statistics of each member are computed with dropout off. Members that are drawn
afresh (`draws=`) have the running statistics of training.
"""

import copy
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from pluribus.axes import Between
from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError, InputError
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.index import Seeds
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.members.tree import divide, named_tensors, plant, take, uproot
from pluribus.mechanisms.network.dry_run import ALIKE, derived_seed
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.layers import there_are
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.torch_private import BatchNorm
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import LARGEST, MOST_DRAWS, MOST_MEMBERS
from pluribus.recipe import Recipe
from pluribus.settings import setting

TUNING_LR = 3e-4
"""Constant rate of a tuning with AdamW. With 1e-3, members of `benchmarks/trained.py --explore` had twice the
mutual information of a rate that fell to zero, and a lower NLL; a third of that is safer for large ones."""


def draw_weights(
    mean: Tensor, square: Tensor, deviations: Tensor, scale: float, diagonal: Tensor, low_rank: Tensor
) -> Tensor:
    """Return one draw of Eq. (1).

    Args:
        mean: θ̄.
        square: s, the mean of the squares.
        deviations: D, `[K, ...]`; fewer than two say nothing of how weights vary together and are left out.
        scale: α.
        diagonal: z_1, as large as the mean.
        low_rank: z_2, `[K]`.
    """
    offset = (square - mean**2).clamp(min=0).sqrt() * diagonal / math.sqrt(2)
    count = len(deviations)
    if count > 1:
        offset = offset + torch.tensordot(low_rank, deviations, 1) / math.sqrt(2 * (count - 1))
    return mean + math.sqrt(scale) * offset


class GaussianWeights(Tensors):
    """The moments of a network's weights; a row is a seed, and None the weights that are trained.

    Args:
        network: Whose tensors these are.
        names: Of the weights that are drawn.
        statistics: Of the running statistics that each member has for itself once they are computed.
        seeds: Of the members.
        rank: How many deviations are kept.
        scale: Of the covariance.
    """

    def __init__(
        self,
        network: Network,
        names: Sequence[str],
        statistics: Sequence[str],
        seeds: Tensor,
        rank: int,
        scale: float,
    ) -> None:
        super().__init__(*divide(network, {}))
        self.rank, self.scale, self.names = rank, scale, tuple(names)
        self.mean, self.square, self.deviations = nn.Module(), nn.Module(), nn.Module()
        self.member_statistics = nn.Module()
        held = self.parts()[0]
        for name in names:
            plant(self.mean, name, torch.zeros_like(held[name].detach()))
            plant(self.square, name, torch.zeros_like(held[name].detach()))
            plant(self.deviations, name, held[name].detach().new_zeros(rank, *held[name].shape))
        for name in statistics:
            plant(self.member_statistics, name, torch.stack([held[name]] * len(seeds)))
        self.member_seeds: Tensor
        self.count: Tensor
        self.finished: Tensor
        self.register_buffer("member_seeds", seeds.clone())
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("finished", torch.zeros((), dtype=torch.bool))

    @torch.no_grad()
    def take_snapshot(self) -> None:
        """Add the present weights to the moments."""
        taken, held = int(self.count), self.parts()[0]
        means, squares = named_tensors(self.mean), named_tensors(self.square)
        for name, deviations in named_tensors(self.deviations).items():
            means[name].lerp_(held[name], 1 / (taken + 1))
            squares[name].lerp_(held[name] ** 2, 1 / (taken + 1))
            deviations[taken % self.rank] = held[name] - means[name]
        self.count += 1
        # Statistics of members with the moments before are not theirs any more.
        self.finished.fill_(False)

    def of(self, rows: Iterable[int | None]) -> Iterator[dict[str, Tensor]]:
        """Yield drawn weights for seeds, and the weights in training for None."""
        shared = self.parts()[0]
        for row in rows:
            yield dict(shared) if row is None else {**shared, **self._drawn(row), **self._statistics_of(row)}

    def keys(self, row: int | None) -> dict[str, Hashable]:
        """Return the seed as the key of everything that is drawn."""
        if row is None:
            return {}
        return dict.fromkeys([*self.names, *self._statistics_of(row)], row)

    def keep(self, rows: Sequence[int]) -> tuple["GaussianWeights", Sequence[int]]:
        """Return the moments with the statistics of these members alone."""
        small, seeds = copy.deepcopy(self), self.member_seeds.tolist()
        positions = [seeds.index(row) for row in rows]
        small.member_seeds = self.member_seeds[positions]
        take(small.member_statistics, dict.fromkeys(named_tensors(small.member_statistics), positions))
        return small, rows

    @torch.no_grad()
    def resolved(self, rows: Sequence[int]) -> Stacked:
        """Return the drawn weights of these members, so that nothing is drawn at run time."""
        shared, own = copy.deepcopy(self.shared), nn.Module()
        each = [{**self._drawn(row), **self._statistics_of(row)} for row in rows]
        for name in each[0]:
            uproot(shared, name)
            value = torch.stack([drawn[name] for drawn in each])
            plant(own, name, nn.Parameter(value, requires_grad=False) if name in self.names else value)
        return Stacked(shared, own).requires_grad_(False)

    def _drawn(self, row: int) -> dict[str, Tensor]:
        """Return the weights of a seed, Eq. (1)."""
        kept = min(int(self.count), self.rank)
        if not kept:
            raise InputError(
                "SWAG must have snapshots of its weights to predict, got none. Call train(...), or "
                "ensemble.after_step(progress) after each step of your own training loop."
            )
        means, squares = named_tensors(self.mean), named_tensors(self.square)
        low_rank = _normal([kept], derived_seed(row, 0))
        drawn = {}
        for place, (name, deviations) in enumerate(named_tensors(self.deviations).items(), 1):
            mean = means[name]
            diagonal = _normal(mean.shape, derived_seed(row, place)).to(mean)
            drawn[name] = draw_weights(
                mean, squares[name], deviations[:kept], self.scale, diagonal, low_rank.to(mean)
            )
        return drawn

    def _statistics_of(self, row: int) -> dict[str, Tensor]:
        """Return the running statistics of a member; none before they are computed, or for a fresh draw."""
        seeds = self.member_seeds.tolist()
        if not self.finished or row not in seeds:
            return {}
        place = seeds.index(row)
        return {name: values[place] for name, values in named_tensors(self.member_statistics).items()}


def _normal(shape: Sequence[int], seed: int) -> Tensor:
    """Return standard normal numbers that follow from a seed."""
    return torch.randn(list(shape), generator=torch.Generator().manual_seed(seed), **ALIKE)


@dataclass(frozen=True)
class SWAG(Method):
    """Members drawn around the average of one training's last weights.

    Args:
        members: How many draws are kept for prediction, at least 1.
        snapshots: How many times the weights are looked at, at least 1.
        rank: How many of the last snapshots tell how weights vary together, at least 1.
        start: The share of training after which the first snapshot is taken, at least 0 and below 1.
        scale: Factor of the covariance, at least 0; 0 leaves the average alone.

    Example:
        >>> ensemble = pluribus.convert(torch.nn.Linear(3, 2), SWAG(members=5))
        >>> ensemble.after_step(progress=1.0)
        >>> ensemble.eval()(torch.zeros(7, 3)).shape
        torch.Size([5, 7, 2])
    """

    members: int = setting(10, at_least=1, at_most=MOST_MEMBERS, search=Between(4, 16))
    snapshots: int = setting(20, at_least=1, at_most=MOST_DRAWS)
    rank: int = setting(20, at_least=1, at_most=MOST_DRAWS)
    start: float = setting(0.75, at_least=0, below=1)
    scale: float = setting(1.0, at_least=0, at_most=LARGEST, search=Between(0.1, 1.0))

    @property
    def on_trained(self) -> str:
        # Members are drawn around the weights of further training, with batch statistics of their own.
        return "approximate"

    def for_trained(self) -> Self:
        # The network is at its optimum already, so that the first step is as good as the last.
        return replace(self, start=0.0) if self.start == type(self).start else self

    def recipe(self) -> Recipe:
        # Weights that move less and less leave no spread: the paper keeps a constant rate at the end.
        return Recipe(tuning_lr=TUNING_LR, schedule="constant")

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        """Return members whose weights are drawn from the moments of the snapshots."""
        chosen = [choice.site for choice in choices if choice.method and choice.site.trained]
        if not chosen:
            raise ConversionError(
                "SWAG must have a trained layer, got none. " + there_are([choice.site for choice in choices])
            )
        names = dict.fromkeys(name for site in chosen for name in site.trained)
        statistics = dict.fromkeys(name for site in chosen for name in site.statistics)
        index = Seeds(self.members, 1, seed, anonymous=True)
        tensors = GaussianWeights(network, [*names], [*statistics], index.seeds, self.rank, self.scale)
        code = PlainCode.of(network.module, network.output)
        layers = tuple(_record(choice, names) for choice in choices)
        return Built(Members(index, tensors, code), layers)

    def is_ready(self, members: AnyMembers) -> bool:
        """Return whether there is a snapshot to draw from."""
        return bool(_weights(members).count)

    def after_step(self, members: AnyMembers, progress: float) -> None:
        """Take a snapshot if one is due."""
        if progress < self.start:
            return
        # Snapshots are due at equal distances from the start to the end; rounding must not lose the last.
        done = (progress - self.start) / (1 - self.start)
        due = 1 + math.floor(done * (self.snapshots - 1) + 1e-9)
        weights = _weights(members)
        if int(weights.count) < due:
            weights.take_snapshot()

    @torch.no_grad()
    def finish(self, members: AnyMembers, batches: Iterable[Inputs]) -> None:
        """Compute the running statistics of every member with its drawn weights."""
        weights = _weights(members)
        if not self.is_ready(members):
            return
        kept = named_tensors(weights.member_statistics)
        for place, row in enumerate(weights.member_seeds.tolist() if kept else ()):
            network = members.as_module(row)
            _recompute_statistics(network, batches)
            for name, buffer in network.named_buffers():
                if name in kept:
                    kept[name][place] = buffer
        weights.finished.fill_(True)


def _weights(members: AnyMembers) -> GaussianWeights:
    """Return the tensors of members, which `build` made."""
    assert isinstance(members.tensors, GaussianWeights)
    return members.tensors


def _recompute_statistics(network: nn.Module, batches: Iterable[Inputs]) -> None:
    """Set the running statistics of a network in eval mode to the average over all batches."""
    norms = [layer for layer in network.modules() if isinstance(layer, BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
        norm.training = True
        norm.momentum = None  # the average, whatever the order of the batches
    for inputs in batches if norms else ():
        if inputs.batch > 1:  # one sample has no variance
            network(*inputs.args, **inputs.keywords)


def _record(choice: LayerChoice, names: dict[str, None]) -> LayerRecord:
    site = choice.site
    if any(name in names for name in site.trained):
        return LayerRecord(site.names, site.kind, "drawn around its average")
    left = "frozen" if site.parameters else "no parameters"
    return LayerRecord(site.names, site.kind, "shared", choice.reason or left)
