"""Courses: the preference for each depth, epoch by epoch, read from the history of runs.

A history holds it as `preference_{input}_{depth}`, both counted from 1.
"""

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pluribus.comparison.record import Record
from pluribus.report.groups import Entry

COLUMN = re.compile(r"preference_(\d+)_(\d+)")


@dataclass(frozen=True)
class Course:
    """The preference for one depth, epoch by epoch, averaged over runs.

    Args:
        depth: From 1, the shallowest.
        given: The input whose preference it is, from 1; 0 for that of all inputs.
        epochs: From 1.
        means: In [0, 1]; those of one input sum to one over the depths.
        spreads: Standard deviation between configurations; zeros for one of them.
    """

    depth: int
    given: int
    epochs: tuple[int, ...]
    means: tuple[float, ...]
    spreads: tuple[float, ...]


def depth_of(entry: Entry) -> int:
    """Return how many depths there are; 0 where no run learnt a preference."""
    depths = [0]
    for run in entry.runs:
        depths += [depth for _, depth in _columns(run)]
    return max(depths)


def read_courses(entry: Entry) -> tuple[Course, ...]:
    """Read the courses of a configuration by input and depth, averaged over seeds."""
    places: set[tuple[int, int]] = set()
    for run in entry.runs:
        places |= _columns(run).keys()
    found = []
    for given, depth in sorted(places):
        means = _mean_of_each([_columns(run).get((given, depth), []) for run in entry.runs])
        epochs = tuple(range(1, len(means) + 1))
        found.append(Course(depth, given, epochs, tuple(means), (0.0,) * len(means)))
    return tuple(found)


def read_together(entries: Sequence[Entry]) -> tuple[Course, ...]:
    """Read the courses by depth, averaged over inputs and seeds, then over configurations."""
    found = []
    for depth in range(1, max(map(depth_of, entries), default=0) + 1):
        # Each configuration counts once, however many inputs and seeds it has.
        rows = [_mean_of_each(_of_depth(entry, depth)) for entry in entries]
        epochs = _by_epoch(rows)
        means, spreads = map(statistics.fmean, epochs), map(statistics.pstdev, epochs)
        found.append(Course(depth, 0, tuple(range(1, len(epochs) + 1)), tuple(means), tuple(spreads)))
    return tuple(found)


def _of_depth(entry: Entry, depth: int) -> list[list[float]]:
    """Return the preferences for a depth of all runs and inputs."""
    rows = []
    for run in entry.runs:
        for (_, own), values in _columns(run).items():
            if own == depth:
                rows.append(values)
    return rows


def _columns(run: Record) -> dict[tuple[int, int], list[float]]:
    """Return the preferences of a run by input and depth."""
    found = {}
    for name, values in run.history.items():
        match = COLUMN.fullmatch(name)
        if match:
            found[int(match[1]), int(match[2])] = values
    return found


def _mean_of_each(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean at each epoch of the rows that reach it: runs may have stopped early."""
    return [statistics.fmean(values) for values in _by_epoch(rows)]


def _by_epoch(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the values of all rows at each epoch."""
    longest = max(map(len, rows), default=0)
    found = []
    for epoch in range(longest):
        found.append([row[epoch] for row in rows if epoch < len(row)])
    return found
