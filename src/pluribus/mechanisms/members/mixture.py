"""The family of ensembles in which the numbers of a network are mixed from a few options.

Chang, Yao, Williams-King & Lipson, "Ensemble model patching", 2019, Eq. (1): a tensor has K options M_k, and
an assignment Z says which number is taken from which.

    W = Σ_k 1[Z = k] ∘ (M_k + σ ε_k),    Z ~ Categorical(p),    ε_k ~ N(0, I)                   (1)

Table 2 of the paper, and what else is a case of it:

    method              what takes one option   options   rate of a further one, zero
    explicit ensemble   the network             K         0
    layer ensemble      a layer                 K         0
    EMP                 a patched layer         K         0
    ECMP                an element of one       K         0
    dropout             an input of a layer     1         p, biases kept
    DropConnect         an element              1         p, biases kept

    symbol   here
    Z        draw_assignment()
    p        Mixture.probabilities, Mixture.rate
    σ        Mixture.noise
"""

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import torch
from torch import Generator, Tensor

from pluribus.mechanisms.members.members import Binding, SeededBinding, share_among, tensors
from pluribus.mechanisms.members.options import OptionBank, Options, all_rows
from pluribus.mechanisms.members.per_sample import PerSample
from pluribus.mechanisms.network.dry_run import ALIKE, derived_seed
from pluribus.mechanisms.network.network import Network
from pluribus.settings import check

ASSIGNMENTS = ("network", "layer", "unit", "element")
"""What takes one option as a whole: all tensors, those of a layer, an input of a layer, a single number."""


NOISE = 1 << 20
"""Offset that keeps the random numbers of noise apart from those of assignments."""


@dataclass(frozen=True)
class Mixture:
    """How a row's tensors are put together from their options, Eq. (1).

    Attributes:
        assignment: What takes one option as a whole, one of `ASSIGNMENTS`.
        probabilities: How probable each option is; they sum to one.
        rate: Probability of a further option that is zero, at least 0 and below 1. Everything else is
            divided by 1 − rate, as in dropout, so that the mean stays what it is.
        noise: Standard deviation of what is added to every number, at least 0.
    """

    assignment: str
    probabilities: tuple[float, ...]
    rate: float = 0.0
    noise: float = 0.0


def uniform(options: int) -> tuple[float, ...]:
    """The same probability for each option."""
    return (1 / options,) * options


def draw_assignment(mixture: Mixture, shape: Sequence[int], generator: Generator | None = None) -> Tensor:
    """Which option each number of a tensor takes, counted from 0; -1 is zero.

    Args:
        mixture: How options are mixed.
        shape: Of the tensor; a layer's inputs are on axis 1.
        generator: Of random numbers on the CPU, which are the same for every device and precision.

    Returns:
        Whole numbers that broadcast to `shape`: one for each number, input, or one alone.
    """
    alone = [size if axis == 1 else 1 for axis, size in enumerate(shape)]
    drawn = {"element": list(shape), "unit": alone}.get(mixture.assignment, [1] * len(shape))
    chances = torch.rand(drawn, generator=generator, **ALIKE)
    return torch.bucketize(chances, _edges(mixture), right=True) - 1


@lru_cache
def _edges(mixture: Mixture) -> Tensor:
    """Where the options begin in [0, 1), behind zero."""
    below = itertools.accumulate((0.0, *mixture.probabilities[:-1]))
    return torch.tensor([mixture.rate + (1 - mixture.rate) * edge for edge in below], **ALIKE)


def mix(options: Tensor, assignment: Tensor, rate: float = 0.0) -> Tensor:
    """Eq. (1) without noise.

    Args:
        options: `[options, ...]`.
        assignment: Broadcasts to `[...]`; -1 is zero.
        rate: How probable zeros are.
    """
    index = assignment.clamp(min=0) if rate else assignment
    several = len(options) > 1
    mixed = options.gather(0, index.expand(options.shape[1:])[None])[0] if several else options[0]
    return mixed * (assignment >= 0).to(mixed) / (1 - rate) if rate else mixed


def keep_draws(
    probabilities: Sequence[Sequence[float]], draws: int, generator: Generator
) -> tuple[list[Options], list[float]]:
    """Rows, and the share of each, which sum to one.

    All rows, each with its probability, where there are at most `draws`; else so many independent draws
    with equal shares, of which some may be the same row.
    """
    sizes = [len(one) for one in probabilities]
    if math.prod(sizes) > draws:
        return choose_rows(probabilities, draws, generator), [1 / draws] * draws
    rows = all_rows(sizes)
    return rows, [math.prod(p[k] for p, k in zip(probabilities, row, strict=True)) for row in rows]


def choose_rows(
    probabilities: Sequence[Sequence[float]], count: int, generator: Generator | None = None
) -> list[Options]:
    """Independent rows, options as probable as given for each site."""
    mixtures = [Mixture("element", tuple(one)) for one in probabilities]
    columns = [draw_assignment(mixture, [count], generator).tolist() for mixture in mixtures]
    return list(zip(*columns, strict=True))


def draw_each(options: Mapping[str, Tensor], mixture: Mixture, batch: int) -> dict[str, Tensor]:
    """The tensors of one site for every sample of a batch, each sample by a draw of its own.

    Args:
        options: By name, `[options, ...]`.
        mixture: Of these options, for a layer or for its elements.
        batch: How many samples there are.

    Returns:
        By name, `[batch, ...]`.
    """
    by_layer, drawn = mixture.assignment == "layer", dict[str, Tensor]()
    together = draw_assignment(replace(mixture, assignment="element"), [batch]) if by_layer else None
    for name, own in options.items():
        if together is not None:
            taken = own[together.clamp(min=0).to(own.device)]
            where = together.view(-1, *[1] * (own.ndim - 1)).to(own.device)
            values = mix(taken[None], where, mixture.rate)
        else:
            each = own.unsqueeze(1).expand(-1, batch, *own.shape[1:])
            values = mix(each, draw_assignment(mixture, each.shape[1:]).to(own.device), mixture.rate)
        if mixture.noise:
            values = values + mixture.noise * torch.randn_like(values)
        drawn[name] = values.as_subclass(PerSample)
    return drawn


class Mixed(Binding):
    """A binding whose rows are draws from mixtures.

    Attributes:
        mixtures: By site, how its options are mixed.
        per_sample: Whether each sample of a training batch has a draw of its own, which is the row None.
    """

    mixtures: dict[str, Mixture]
    per_sample = False
    train_draws: int
    _names: dict[str, tuple[str, ...]]

    def rows(self, training: bool = False) -> Sequence[Any]:
        each = training and self.per_sample
        return [None] * self.train_draws if each else super().rows(training)

    def mix(self, rows: Sequence[Any], sizes: Sequence[int]) -> dict[str, Tensor] | None:
        if any(row is not None for row in rows):
            return None
        own, found = tensors(self.own), self.shared_tensors()
        for site, names in self._names.items():
            found |= draw_each({name: own[name] for name in names}, self.mixtures[site], sum(sizes))
        return found

    def mixing(self) -> dict[str, tuple[float, ...]]:
        """By name of a tensor, how probable its options are."""
        return {
            name: self.mixtures[site].probabilities for site, names in self._names.items() for name in names
        }


class DrawnBank(Mixed, OptionBank):
    """An option bank whose rows are independent draws; equal ones are one row with a greater weight.

    Where there are no more rows than draws, all of them are kept, with their probabilities as weights.

    Args:
        network: Whose tensors these are.
        own: By name, the options of each tensor that has some, `[options, ...]`; all others are shared.
        sites: By name of the site, the names of its tensors.
        mixtures: By site, how its options are mixed.
        draws: How many draws are kept for eval mode.
        train_draws: How many rows there are in training, drawn afresh for every call.
        seed: Of the draws that are kept.
    """

    def __init__(
        self,
        network: Network,
        own: Mapping[str, Tensor],
        sites: Mapping[str, Sequence[str]],
        mixtures: Mapping[str, Mixture],
        draws: int,
        train_draws: int,
        seed: int,
    ) -> None:
        super().__init__(network, own, sites, 1, train_draws, seed)
        self.mixtures = dict(mixtures)
        generator = torch.Generator().manual_seed(derived_seed(seed, 1))
        kept, shares = keep_draws(self._probabilities(), draws, generator)
        self.kept = torch.tensor(kept)
        self.shares: Tensor
        dtype = next(iter(own.values())).dtype  # that of the network, which says how a file is read
        self.register_buffer("shares", torch.tensor(shares, dtype=dtype))

    def draw(self, draws: int, training: bool = False) -> Sequence[Options]:
        return choose_rows(self._probabilities(), draws)

    def weights(self, draws: int | None = None) -> Tensor:
        rows = self._kept_rows()
        shares = self.shares.to(torch.promote_types(self.shares.dtype, torch.float32))
        every = math.prod(self.options) == len(rows)  # no draws are kept but probabilities
        if draws is not None:
            check("draws", draws, int, at_least=1, at_most=math.inf if every else len(self.kept))
        if draws is not None and every:
            drawn = choose_rows([tuple(self.weights().tolist())], draws, torch.Generator().manual_seed(0))
            counts = torch.bincount(torch.tensor(drawn).flatten(), minlength=len(rows))
            return counts.to(shares) / draws
        places = {row: place for place, row in enumerate(rows)}
        kept = [places[tuple(row)] for row in self.kept[:draws].tolist()]
        total = shares.new_zeros(len(rows))
        total = total.index_add(0, torch.tensor(kept, device=total.device), shares[:draws])
        return total / total.sum()

    def count_draws(self, rows: Sequence[Any]) -> int:
        return len(self.kept if list(rows) == self._kept_rows() else rows)

    def shrink(self, rows: Sequence[int]) -> Self:
        small = super().shrink(rows)
        small.shares = share_among(self.weights(), rows).to(self.shares)
        for (site, mixture), column in zip(self.mixtures.items(), self._columns(rows), strict=True):
            left = [mixture.probabilities[option] for option in column.unique().tolist()]
            normalised = tuple(one / sum(left) for one in left)
            small.mixtures[site] = replace(mixture, probabilities=normalised)
        return small

    def _kept_rows(self) -> list[Options]:
        return list(dict.fromkeys(super()._kept_rows()))

    def _probabilities(self) -> list[tuple[float, ...]]:
        return [self.mixtures[site].probabilities for site in self._names]


class MixtureBank(Mixed, SeededBinding):
    """Rows drawn from any mixture; a row is a seed, from which its assignments and its noise follow.

    Args:
        network: Whose tensors these are.
        own: By name, the options of each tensor that has some, `[options, ...]`; all others are shared.
        sites: By name of the site, the names of its tensors.
        mixtures: By site, how its options are mixed.
        draws: How many seeds are kept for eval mode.
        train_draws: How many rows there are in training, drawn afresh for every call.
        seed: Of the seeds.
    """

    def __init__(
        self,
        network: Network,
        own: Mapping[str, Tensor],
        sites: Mapping[str, Sequence[str]],
        mixtures: Mapping[str, Mixture],
        draws: int,
        train_draws: int,
        seed: int,
    ) -> None:
        super().__init__(network, own, draws, train_draws, seed)
        self.mixtures = dict(mixtures)
        self._names = {site: tuple(names) for site, names in sites.items()}

    def choices(self, row: int) -> dict[str, Hashable]:
        return dict.fromkeys((name for names in self._names.values() for name in names), row)

    def bind(self, rows: Sequence[int]) -> Iterator[dict[str, Tensor]]:
        shared, own = self.shared_tensors(), tensors(self.own)
        for row in rows:
            yield {**shared, **dict(self._drawn(row, own))}

    def _drawn(self, row: int, own: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """The tensors of one row, those that are assigned together by the same random numbers."""
        tensor = 0
        for position, (site, names) in enumerate(self._names.items()):
            mixture = self.mixtures[site]
            for name in names:
                stream = {"network": 0, "layer": position}.get(mixture.assignment, tensor)
                generator = torch.Generator().manual_seed(derived_seed(row, stream))
                assignment = draw_assignment(mixture, own[name].shape[1:], generator)
                mixed = mix(own[name], assignment.to(own[name].device), mixture.rate)
                if mixture.noise:
                    generator.manual_seed(derived_seed(row, NOISE + tensor))
                    noise = torch.randn(mixed.shape, generator=generator, **ALIKE)
                    mixed = mixed + mixture.noise * noise.to(mixed)
                tensor += 1
                yield name, mixed

    def _used(self, rows: Sequence[int]) -> dict[str, Sequence[int]]:
        return {name: range(len(options)) for name, options in tensors(self.own).items()}
