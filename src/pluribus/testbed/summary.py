"""Summary: mean scores of methods over the problems that all of them have, with standard errors."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pluribus.report.columns import Cell as Number
from pluribus.testbed.cells import Cell
from pluribus.testbed.presets import REFERENCES
from pluribus.testbed.results import Result

Value = Callable[[Result], float]
"""Returns one number of a result; NaN where it has none."""
RANKED = "ranked"


@dataclass(frozen=True)
class Row:
    """One line of the table: a method, or a part of its members.

    Attributes:
        label: Its name in the table.
        method: Whose results it reads.
        value: Returns the score from a result in a direction.
        is_reference: Whether it is a sampler of a known distribution.
    """

    label: str
    method: str
    value: Callable[[Result, str], float]
    is_reference: bool = False


def all_members(result: Result, direction: str) -> float:
    """Return the score of all members together."""
    return result.scores[direction]


def best_ranked(result: Result, direction: str) -> float:
    """Return the score of the ranked members that were best on the validation points."""
    return result.ranked[result.best][direction] if result.best else math.nan


def rows_of(results: Sequence[Result]) -> list[Row]:
    """Return the rows of a table of these results, in their order."""
    rows = list[Row]()
    for method in dict.fromkeys(result.method for result in results):
        own = [result for result in results if result.method == method]
        rows.append(Row(method, method, all_members, method in REFERENCES))
        if any(result.best for result in own):
            rows.append(Row(f"{method}, {RANKED}", method, best_ranked))
    return rows


def common(results: Sequence[Result]) -> list[Result]:
    """Return the results on problems that all methods have; all results where there are none.

    A run that was stopped has problems that only some methods have, which would make means incomparable.
    """
    methods = {result.method for result in results}
    seen = defaultdict[tuple[Cell, int], set[str]](set)
    for result in results:
        seen[result.cell, result.seed].add(result.method)
    shared = [result for result in results if seen[result.cell, result.seed] == methods]
    return shared or list(results)


def by_cell(results: Iterable[Result], value: Value) -> dict[Cell, list[float]]:
    """Return the numbers of every cell, one for each seed."""
    found = defaultdict[Cell, list[float]](list)
    for result in results:
        found[result.cell].append(value(result))
    return dict(found)


def mean_over_cells(numbers: Mapping[Cell, Sequence[float]]) -> Number:
    """Return the mean of the cells' means, and its standard error from the scatter of the seeds.

    Cells differ far more than seeds, so that the scatter is taken inside of each cell. It is unknown (NaN)
    where a cell has a single seed.
    """
    known = [values for values in numbers.values() if values]
    if not known:
        return Number(math.nan, math.nan)
    mean = statistics.fmean(statistics.fmean(values) for values in known)
    if min(map(len, known)) < 2:
        return Number(mean, math.nan)
    variance = sum(statistics.variance(values) / len(values) for values in known)
    return Number(mean, math.sqrt(variance) / len(known))


def summarise(results: Sequence[Result], row: Row, direction: str) -> Number:
    """Return the mean score of a row over the cells, with its standard error."""
    own = [result for result in results if result.method == row.method]
    return mean_over_cells(by_cell(own, lambda result: row.value(result, direction)))


def counted_seeds(results: Sequence[Result]) -> dict[Cell, int]:
    """Return how many seeds each cell has."""
    seeds = defaultdict[Cell, set[int]](set)
    for result in results:
        seeds[result.cell].add(result.seed)
    return {cell: len(found) for cell, found in seeds.items()}
