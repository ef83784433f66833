"""Depth preference: how much the exits of each depth count, for each input, as training goes on.

Figure 4 of Ferianc, Fan & Rodrigues, "SAE: Single architecture ensemble neural networks", BMVC 2024.
"""

import itertools
from typing import Any

import plotly.graph_objects as go

from pluribus.report.figures.courses import Course, depth_of, read_courses, read_together
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
from pluribus.report.groups import Group


def draw_courses(courses: tuple[Course, ...]) -> go.Figure:
    """Draw a line for each depth and input: a colour for each depth, a dash for each input."""
    several = len({course.given for course in courses}) > 1
    traces: list[go.Scatter] = []
    for course in courses:
        traces += [*_band(course), _line(course, several)]
    depths = max(course.depth for course in courses)
    epochs = max(course.epochs[-1] for course in courses)
    even = go.Scatter(
        x=[1, epochs],
        y=rounded([1 / depths] * 2),
        mode="lines",
        name="all alike",
        line={"color": NEUTRAL, "dash": "dot", "width": 1},
        hoverinfo="skip",
    )
    # Ticks at whole epochs, with room for the first and the last marker.
    ticks = {"range": [0.9, epochs + 0.1], "tick0": 0, "dtick": whole_step(epochs)}
    axes: dict[str, dict[str, Any]] = {"xaxis": ticks, "yaxis": {"rangemode": "tozero"}}
    return figure([even, *traces], "Epoch", "Preference", axes=axes)


def whole_step(last: int, most: int = 10) -> int:
    """Return the least of 1, 2, 5, 10, 20, … that leads to `last` in at most `most` steps.

    >>> [whole_step(last) for last in (4, 10, 12, 30, 200)]
    [1, 1, 2, 5, 20]
    """
    steps = (digit * int(10**power) for power in itertools.count() for digit in (1, 2, 5))
    return next(step for step in steps if last <= most * step)


def preference_panel(group: Group) -> Panel | None:
    """Return all configurations together, and each by itself; None where no run learnt a preference."""
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


def _name(course: Course, several: bool) -> str:
    """Return the name of a course in the legend."""
    return f"input {course.given}, depth {course.depth}" if several else f"depth {course.depth}"


def _line(course: Course, several: bool) -> go.Scatter:
    """Draw the line of a course."""
    # Colours and dashes repeat where there are more depths or inputs than of them.
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
    """Draw the band between the mean less and plus the spread; nothing where all spreads are zero."""
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
