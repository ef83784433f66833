"""Depth preference: how much the exits of each depth count, for each input, as training goes on.

Figure 4 of Ferianc, Fan & Rodrigues, "SAE: Single architecture ensemble neural networks", BMVC 2024. The
history of a run holds it as `preference_{input}_{depth}`, both counted from 1.
"""

import itertools
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from pluribus.comparison.record import Record
from pluribus.report.figures.drawing import (
    COLOURS,
    DASHES,
    NEUTRAL,
    Figures,
    Panel,
    Selector,
    figure,
    rounded,
)
from pluribus.report.figures.reliability import ALL
from pluribus.report.groups import Entry, Group

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
    """How many depths there are; 0 where no run says."""
    return max((depth for run in entry.runs for _, depth in _columns(run)), default=0)


def read_courses(entry: Entry) -> tuple[Course, ...]:
    """Of every input and depth of a configuration, averaged over seeds, in the order of inputs."""
    places = sorted({place for run in entry.runs for place in _columns(run)})
    found = []
    for given, depth in places:
        means = _mean_of_each([_columns(run).get((given, depth), []) for run in entry.runs])
        epochs = tuple(range(1, len(means) + 1))
        found.append(Course(depth, given, epochs, tuple(means), (0.0,) * len(means)))
    return tuple(found)


def read_together(entries: Sequence[Entry]) -> tuple[Course, ...]:
    """Of every depth, averaged over inputs and seeds, then over configurations."""
    found = []
    for depth in range(1, max(map(depth_of, entries), default=0) + 1):
        rows = [
            _mean_of_each(
                [values for run in entry.runs for (_, d), values in _columns(run).items() if d == depth]
            )
            for entry in entries
        ]
        each = [[row[epoch] for row in rows if epoch < len(row)] for epoch in range(max(map(len, rows)))]
        means, spreads = map(statistics.fmean, each), map(statistics.pstdev, each)
        found.append(Course(depth, 0, tuple(range(1, len(each) + 1)), tuple(means), tuple(spreads)))
    return tuple(found)


def draw_courses(courses: tuple[Course, ...]) -> go.Figure:
    """A line for each depth and input: another colour for each depth, another dash for each input."""
    several = len({course.given for course in courses}) > 1
    traces = [trace for course in courses for trace in (*_band(course), _line(course, several))]
    depths, epochs = (max(values) for values in zip(*((c.depth, c.epochs[-1]) for c in courses), strict=True))
    even = go.Scatter(
        x=[1, epochs],
        y=rounded([1 / depths] * 2),
        mode="lines",
        name="all alike",
        line={"color": NEUTRAL, "dash": "dot", "width": 1},
        hoverinfo="skip",
    )
    ticks = {"range": [0.9, epochs + 0.1], "tick0": 0, "dtick": whole_step(epochs)}
    axes: dict[str, dict[str, Any]] = {"xaxis": ticks, "yaxis": {"rangemode": "tozero"}}
    return figure([even, *traces], "Epoch", "Preference", axes=axes)


def whole_step(last: int, most: int = 10) -> int:
    """The least of 1, 2, 5, 10, 20, … that leads to `last` in at most `most` steps: no tick between epochs.

    >>> [whole_step(last) for last in (4, 10, 12, 30, 200)]
    [1, 1, 2, 5, 20]
    """
    steps = (digit * int(10**power) for power in itertools.count() for digit in (1, 2, 5))
    return next(step for step in steps if last <= most * step)


def preference_panel(group: Group) -> Panel | None:
    """All configurations together, or one; None where no run learnt a preference."""
    entries = [entry for entry in group.entries if depth_of(entry)]
    if not entries:
        return None
    shown: Figures = {(entry.label,): draw_courses(read_courses(entry)) for entry in entries}
    if len(entries) > 1:
        shown = {(ALL,): draw_courses(read_together(entries)), **shown}
    return Panel(
        "preference",
        "Which depths does it learn from?",
        "How much each exit counts as training goes on, from the shallowest, depth 1; those of an input sum "
        "to one. Over all configurations and inputs, with the standard deviation between configurations as a "
        "band; or for the inputs of one.",
        shown,
        (Selector("configuration", tuple(label for (label,) in shown)),),
    )


def _columns(run: Record) -> dict[tuple[int, int], list[float]]:
    """By input and depth, both from 1."""
    found = ((COLUMN.fullmatch(name), values) for name, values in run.history.items())
    return {(int(match[1]), int(match[2])): values for match, values in found if match}


def _mean_of_each(rows: Sequence[Sequence[float]]) -> list[float]:
    """The mean at each epoch of those that came so far."""
    longest: Iterable[int] = range(max(map(len, rows), default=0))
    return [statistics.fmean(row[epoch] for row in rows if epoch < len(row)) for epoch in longest]


def _name(course: Course, several: bool) -> str:
    return f"input {course.given}, depth {course.depth}" if several else f"depth {course.depth}"


def _line(course: Course, several: bool) -> go.Scatter:
    colour = COLOURS[(course.depth - 1) % len(COLOURS)]
    dash = DASHES[max(course.given - 1, 0) % len(DASHES)]
    return go.Scatter(
        x=list(course.epochs),
        y=rounded(course.means),
        mode="lines+markers",
        name=_name(course, several),
        line={"color": colour, "dash": dash},
        marker={"color": colour, "size": 5},
        hovertemplate="%{y:.3f} after epoch %{x}<extra>%{fullData.name}</extra>",
    )


def _band(course: Course) -> list[go.Scatter]:
    """Between the mean less and plus the spread; nothing where all spreads are zero."""
    if not any(course.spreads):
        return []
    pairs = list(zip(course.means, course.spreads, strict=True))
    upper, lower = [mean + spread for mean, spread in pairs], [mean - spread for mean, spread in pairs]
    return [
        go.Scatter(
            x=[*course.epochs, *reversed(course.epochs)],
            y=rounded([*upper, *reversed(lower)]),
            mode="lines",
            line={"width": 0},
            fill="toself",
            fillcolor=COLOURS[(course.depth - 1) % len(COLOURS)],
            opacity=0.15,
            name=_name(course, False),
            showlegend=False,
            hoverinfo="skip",
        )
    ]
