"""Curves: mean scores over the number of members, for Figs. 2 and 4 of the Layer Ensembles paper."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pluribus.report.columns import Cell as Number
from pluribus.testbed.results import Curve, Result
from pluribus.testbed.summary import by_cell, mean_over_cells

DEEP = "deep_ensembles"
LAYERS = "layer_ensembles_"
FEWEST = 2
"""Ranked members at which a curve begins: one alone has no spread, and a score of thousands."""


@dataclass(frozen=True)
class Line:
    """A curve: its name and the mean score at each number of members."""

    name: str
    sizes: tuple[int, ...]
    numbers: tuple[Number, ...]

    @property
    def best(self) -> int:
        """Return the place of the lowest mean."""
        return min(range(len(self.sizes)), key=lambda place: self.numbers[place].mean)


def read_line(name: str, results: Sequence[Result], curve: Callable[[Result], Curve], direction: str) -> Line:
    """Return the mean over cells at each number of members that all results have."""
    sizes = set(curve(results[0]))
    for result in results:
        sizes &= curve(result).keys()
    numbers = list[Number]()
    for size in sorted(sizes):
        each = by_cell(results, lambda result, size=size: curve(result)[size][direction])  # type: ignore[misc]
        numbers.append(mean_over_cells(each))
    return Line(name, tuple(sorted(sizes)), tuple(numbers))


def subset_lines(results: Sequence[Result], direction: str) -> list[Line]:
    """Return Fig. 2: Deep Ensembles over K, and random members of Layer Ensembles."""
    lines = list[Line]()
    for method in _methods(results):
        own = [result for result in results if result.method == method]
        if method == DEEP:
            lines.append(read_line("K networks", own, lambda result: result.random, direction))
        elif _is_layers(method):
            name = f"{method.removeprefix(LAYERS)} options, random members"
            lines.append(read_line(name, own, lambda result: result.random, direction))
    return lines


def ranked_lines(results: Sequence[Result], direction: str) -> list[Line]:
    """Return Fig. 4: ranked members of Layer Ensembles."""
    lines = list[Line]()
    for method in filter(_is_layers, _methods(results)):
        own = [result for result in results if result.method == method]
        line = read_line(f"{method.removeprefix(LAYERS)} options", own, _ranked, direction)
        if line.sizes:
            lines.append(line)
    return lines


def _ranked(result: Result) -> Curve:
    return {size: scores for size, scores in result.ranked.items() if size >= FEWEST}


def _methods(results: Sequence[Result]) -> list[str]:
    """Return the methods of results, Layer Ensembles with few options first."""
    return sorted(dict.fromkeys(result.method for result in results))


def _is_layers(method: str) -> bool:
    """Return whether this is a preset of Layer Ensembles with a prior, as the paper draws them."""
    return method.startswith(LAYERS) and method.removeprefix(LAYERS).isdecimal()
