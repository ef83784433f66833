"""Cells: the settings of the problems, as the text of `--grid` names them."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pluribus.ranges import invalid

PAPER_GRID = "D=10,100;lambda=1,10,100;epsilon=0.01,0.1,1"
"""The paper's grid without D = 1000, whose largest kernel has 100,000 rows."""
PAPER_SEEDS = (1, 2, 6, 0, 5, 17, 12, 260, 19, 98)
"""Seeds of the problems in the authors' code."""
AXES: dict[str, type[int] | type[float]] = {"D": int, "lambda": int, "epsilon": float}


@dataclass(frozen=True)
class Cell:
    """One kind of problem.

    Attributes:
        inputs: D, how many inputs the function has.
        ratio: λ, training points for each input.
        noise: ε, the standard deviation of the targets' noise.
    """

    inputs: int
    ratio: int
    noise: float

    def __str__(self) -> str:
        return f"D={self.inputs}, λ={self.ratio}, ε={self.noise:g}"


@dataclass(frozen=True)
class Grid:
    """All combinations of a few values of each axis.

    Attributes:
        inputs: Values of D.
        ratios: Values of λ.
        noises: Values of ε.
    """

    inputs: tuple[int, ...]
    ratios: tuple[int, ...]
    noises: tuple[float, ...]

    @property
    def cells(self) -> list[Cell]:
        """Return every combination, cheap ones first."""
        every = itertools.product(self.inputs, self.ratios, self.noises)
        return sorted((Cell(*one) for one in every), key=lambda cell: cell.inputs * cell.ratio)

    def shapes(self) -> list[tuple[int, int]]:
        """Return every D and λ, those with few training points first."""
        return sorted(itertools.product(self.inputs, self.ratios), key=lambda shape: shape[0] * shape[1])


def parse_grid(text: str) -> Grid:
    """Return the grid that a text such as `D=10,100;lambda=1;epsilon=0.1` names.

    Axes that are missing take the paper's values.
    """
    values = dict(_axes(PAPER_GRID)) | dict(_axes(text))
    inputs, ratios = (tuple(map(int, values[name])) for name in ("D", "lambda"))
    grid = Grid(inputs, ratios, values["epsilon"])
    for name, numbers in (("D", grid.inputs), ("lambda", grid.ratios), ("epsilon", grid.noises)):
        if min(numbers) <= 0:
            raise invalid("grid", f"numbers above 0 for {name}", text)
    return grid


def _axes(text: str) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield each axis of a text with its values, each value once."""
    for part in filter(None, (one.strip() for one in text.split(";"))):
        name, sign, values = part.partition("=")
        name = name.strip()
        if not sign or name not in AXES:
            raise invalid("grid", f"axes {', '.join(AXES)} such as {PAPER_GRID!r}", text)
        yield name, tuple(dict.fromkeys(_number(name, one, text) for one in values.split(",")))


def _number(name: str, value: str, text: str) -> float:
    """Return one value of an axis as a number of the right kind."""
    try:
        return AXES[name](value.strip())
    except ValueError:
        kind = "whole numbers" if AXES[name] is int else "numbers"
        raise invalid("grid", f"{kind} for {name}", text) from None


def paper_seeds(count: int) -> Sequence[int]:
    """Return so many seeds of problems, the paper's first."""
    more = (number for number in itertools.count() if number not in PAPER_SEEDS)
    return tuple(itertools.islice(itertools.chain(PAPER_SEEDS, more), count))
