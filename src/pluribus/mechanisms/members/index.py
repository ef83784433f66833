"""Index: which members there are, how each is named, and how much it counts.

A *row* is the name of a member: a position, a seed, one option for each site, or a pair of an input and an
exit. Everything random that defines a row of eval mode is a persistent buffer of its index.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from pluribus.errors import InputError
from pluribus.mechanisms.members.combinations import Options, choose_rows, draw_rows
from pluribus.mechanisms.network.dry_run import derived_seed
from pluribus.ranges import check

Row = Any
"""The name of a member; hashable."""

# So many that draws hardly ever coincide, and that float64 holds each exactly.
SEEDS = 1 << 40
"""How many seeds there are to draw from."""


class Index(nn.Module, ABC):
    """Name the members there are, and how much each counts."""

    @abstractmethod
    def rows(self, training: bool) -> Sequence[Row]:
        """Return the rows of `ensemble(x)` in train or in eval mode."""

    @abstractmethod
    def keep(self, positions: Sequence[int], rows: Sequence[Row]) -> "Index":
        """Return an index of some rows of eval mode alone, in this order.

        Args:
            positions: Of the rows that are kept.
            rows: Their new names, as `Tensors.keep` gave them.
        """

    @property
    def count(self) -> int:
        """Return the number of rows of eval mode."""
        return len(self.rows(training=False))

    def draw(self, count: int, training: bool) -> Sequence[Row]:
        """Return fresh rows; only where rows are random."""
        raise InputError(
            f"draws= needs a method whose members are random, got one with {self.count} fixed members. "
            "Leave draws out, or name rows with members=[...]."
        )

    def pick(self, named: Sequence[Any]) -> Sequence[Row]:
        """Return the rows that a user names by their positions in eval mode."""
        self.check_positions(named)
        rows = self.rows(training=False)
        return [rows[position] for position in named]

    def check_positions(self, named: Sequence[Any]) -> None:
        """Raise for anything that is no position of a row of eval mode."""
        count = self.count
        for member in named:
            # `bool` is a subclass of `int`, and a mask is no list of positions.
            if type(member) is not int or not 0 <= member < count:
                raise InputError(
                    f"members must be positions from 0 to {count - 1}, got {member!r}. Count them from 0."
                )

    def weights(self, draws: int | None = None) -> Tensor:
        """Return how much each row of eval mode counts, `[members]`, or would with the first draws alone."""
        count = self.count
        first = count if draws is None else draws
        check("draws", first, int, at_least=1, at_most=count)
        return (torch.arange(count) < first) / first

    def count_draws(self, rows: Sequence[Row]) -> int:
        """Return how many draws some rows stand for: equal draws may be one row."""
        return len(rows)

    def restore(self, positions: Sequence[int], saved: Mapping[str, Tensor]) -> None:
        """Set which rows these were when they were saved, before `keep`.

        Args:
            positions: Of the rows that were kept.
            saved: The tensors of the index in the file.
        """

    def readings(self) -> dict[str, float]:
        """Return what the index has learnt, by name, for the record of training."""
        return {}

    @property
    def sites(self) -> tuple[str, ...]:
        """Return the layers of which a row chooses one option each, in the order of its choices."""
        return ()

    @property
    def case(self) -> str:
        """Return the case of the method; empty where there is only one."""
        return ""


class Fixed(Index):
    """Name a fixed number of members by their positions.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    @property
    def count(self) -> int:
        return self._count

    def rows(self, training: bool) -> Sequence[int]:
        return range(self._count)

    def keep(self, positions: Sequence[int], rows: Sequence[Row]) -> "Fixed":
        return Fixed(len(positions))


class Seeds(Index):
    """Name rows by seeds: kept ones in eval mode, and fresh ones in training.

    Args:
        draws: How many seeds are kept.
        train_draws: How many rows there are in training.
        seed: From which the kept seeds follow.
        anonymous: Whether a row of training is None, for which torch's own random numbers are drawn.
    """

    def __init__(self, draws: int, train_draws: int, seed: int, anonymous: bool = False) -> None:
        super().__init__()
        self.train_draws, self.anonymous = train_draws, anonymous
        generator = torch.Generator().manual_seed(derived_seed(seed, 0))
        self.seeds: Tensor
        self.register_buffer("seeds", torch.randint(SEEDS, (draws,), generator=generator))

    @property
    def count(self) -> int:
        return len(self.seeds)

    def rows(self, training: bool) -> Sequence[int | None]:
        if training:
            return self.draw(self.train_draws, training)
        return self.seeds.tolist()

    def draw(self, count: int, training: bool) -> Sequence[int | None]:
        if training and self.anonymous:
            return [None] * count
        return torch.randint(SEEDS, (count,)).tolist()

    def keep(self, positions: Sequence[int], rows: Sequence[Row]) -> "Seeds":
        small = copy.deepcopy(self)
        small.seeds = self.seeds[list(positions)]
        return small


class Combinations(Index):
    """Name rows by one option for each site: kept ones in eval mode, and fresh ones in training.

    Args:
        sizes: By name of the site, how many options it has.
        kept: The rows of eval mode, some of which may be equal.
        train_draws: How many rows there are in training.
        shares: How much each kept row counts; None is all alike.
        probabilities: Of the options of each site; None is uniform.
        anonymous: Whether a row of training is None: each sample of the batch has a draw of its own.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        kept: Sequence[Options],
        train_draws: int,
        shares: Tensor | None = None,
        probabilities: Sequence[tuple[float, ...]] | None = None,
        anonymous: bool = False,
    ) -> None:
        super().__init__()
        self.sizes, self.train_draws, self.anonymous = dict(sizes), train_draws, anonymous
        self.probabilities = None if probabilities is None else list(probabilities)
        self.kept: Tensor
        self.shares: Tensor | None
        self.register_buffer("kept", torch.tensor(list(kept)))
        self.register_buffer("shares", shares)

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self.sizes)

    def rows(self, training: bool) -> Sequence[Options | None]:
        if training and self.anonymous:
            return [None] * self.train_draws
        if training:
            return self.draw(self.train_draws, training)
        return self._distinct()

    def draw(self, count: int, training: bool) -> Sequence[Options]:
        if self.probabilities is None:
            return draw_rows(list(self.sizes.values()), count)
        return choose_rows(self.probabilities, count)

    def pick(self, named: Sequence[Any]) -> Sequence[Options]:
        numbers = isinstance(named, tuple) and all(type(member) is int for member in named)
        # As many numbers as there are sites may be rows, or the options of a single row.
        if numbers and len(named) == len(self.sites) > 1:
            raise InputError(
                f"members must be a list of rows, got {named!r}, which may be rows or options of one. "
                f"Pass {list(named)} for the former, [{named!r}] for the latter."
            )
        self.check_positions([member for member in named if type(member) is int])
        kept = self._distinct()
        rows = list[Options]()
        for member in named:
            rows.append(kept[member] if type(member) is int else self._checked(member))
        return rows

    def weights(self, draws: int | None = None) -> Tensor:
        if self.shares is None:
            return super().weights(draws)
        rows = self._distinct()
        shares = self.shares.to(torch.promote_types(self.shares.dtype, torch.float32))
        # With every combination kept, shares are probabilities, from which any number can be drawn.
        every = math.prod(self.sizes.values()) == len(rows)
        if draws is not None:
            check("draws", draws, int, at_least=1, at_most=math.inf if every else len(self.kept))
        if draws is not None and every:
            return self._drawn_weights(draws).to(shares)
        places = {row: place for place, row in enumerate(rows)}
        kept = [places[tuple(row)] for row in self.kept[:draws].tolist()]
        total = shares.new_zeros(len(rows))
        total = total.index_add(0, torch.tensor(kept, device=total.device), shares[:draws])
        return total / total.sum()

    def _drawn_weights(self, draws: int) -> Tensor:
        """Return how often each row comes among some draws, `[members]`; it sums to one."""
        weights = self.weights()
        # A fixed seed, so that predictions with the same number of draws are the same.
        generator = torch.Generator().manual_seed(0)
        drawn = choose_rows([tuple(weights.tolist())], draws, generator)
        counts = torch.bincount(torch.tensor(drawn).flatten(), minlength=len(weights))
        return counts.to(weights) / draws

    def count_draws(self, rows: Sequence[Row]) -> int:
        # Equal draws were kept, and are one row.
        if list(rows) == self._distinct():
            return len(self.kept)
        return len(rows)

    def keep(self, positions: Sequence[int], rows: Sequence[Options]) -> Self:
        small, before = copy.deepcopy(self), self._distinct()
        small.kept = torch.tensor(list(rows), device=self.kept.device)
        if self.shares is not None:
            small.shares = share_among(self.weights(), positions).to(self.shares)
        for site, name in enumerate(self.sizes):
            options = sorted({before[position][site] for position in positions})
            small.sizes[name] = len(options)
            # Probabilities of the options that stay sum to one again.
            if self.probabilities is not None and small.probabilities is not None:
                left = [self.probabilities[site][option] for option in options]
                small.probabilities[site] = tuple(one / sum(left) for one in left)
        return small

    def _distinct(self) -> list[Options]:
        """Return the kept rows, equal ones once."""
        return list(dict.fromkeys(tuple(row) for row in self.kept.tolist()))

    def _checked(self, row: Any) -> Options:
        """Return a row that a user names by its options."""
        if not self._is_row(row):
            counts = ", ".join(f"{site!r}: {count}" for site, count in self.sizes.items())
            raise InputError(
                f"members must be positions from 0 to {self.count - 1}, or name one option for each site "
                f"(options are {counts}), got {row!r}. Count options from 0."
            )
        return tuple(row)

    def _is_row(self, row: Any) -> bool:
        """Return whether something is one option for each site."""
        sizes = list(self.sizes.values())
        if not isinstance(row, Sequence) or len(row) != len(sizes):
            return False
        for option, size in zip(row, sizes, strict=True):
            if type(option) is not int or not 0 <= option < size:
                return False
        return True


def share_among(weights: Tensor, positions: Sequence[int]) -> Tensor:
    """Return how much some rows count among themselves; alike where none of them counts."""
    chosen = weights[list(positions)]
    # Rows without any weight cannot be divided by their sum.
    if not chosen.any():
        return torch.full_like(chosen, 1 / len(chosen))
    return chosen / chosen.sum()
