"""Figures of the testbed: Figs. 2, 4 and 5 of the Layer Ensembles paper, over all cells or one."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go

from pluribus.report.columns import Cell as Number
from pluribus.report.figures.drawing import COLOURS, NEUTRAL, Panel, Selector, bars, figure, look, rounded
from pluribus.testbed.cells import Cell
from pluribus.testbed.curves import DEEP, FEWEST, Line, ranked_lines, subset_lines
from pluribus.testbed.results import Result
from pluribus.testbed.summary import common, rows_of, summarise

EVERY = "all"
"""The option that averages over all cells."""
AXES = {"yaxis": {"type": "log"}}


def draw_subsets(lines: Sequence[Line]) -> go.Figure:
    """Draw Fig. 2."""
    traces = [
        go.Scatter(
            x=list(line.sizes),
            y=rounded([number.mean for number in line.numbers]),
            error_y=bars([number.error for number in line.numbers]),
            mode="lines+markers",
            name=line.name,
            hovertemplate="KL %{y:.3g} with %{x} members<extra>%{fullData.name}</extra>",
            **look(position),
        )
        for position, line in enumerate(lines)
    ]
    axes = {"xaxis": {"type": "log", "tickvals": [2, 3, 5, 10, 20, 30, 50, 100, 200]}, **AXES}
    return figure(traces, "Members that predict", "Mean KL (lower is better)", axes=axes)


def draw_ranked(lines: Sequence[Line], deep: Number | None) -> go.Figure:
    """Draw Fig. 4, with 30 networks as a level."""
    traces = list[Any]()
    for position, line in enumerate(lines):
        style = look(position)
        traces.append(
            go.Scatter(
                x=list(line.sizes),
                y=rounded([number.mean for number in line.numbers]),
                mode="lines",
                name=line.name,
                line=style["line"],
                hovertemplate="KL %{y:.3g} with the best %{x}<extra>%{fullData.name}</extra>",
            )
        )
        best = line.best
        traces.append(
            go.Scatter(
                x=[line.sizes[best]],
                y=rounded([line.numbers[best].mean]),
                mode="markers",
                name=f"{line.name}: lowest",
                marker={"color": style["line"]["color"], "symbol": "star", "size": 12},
                showlegend=False,
                hovertemplate="lowest: KL %{y:.3g} with %{x}<extra></extra>",
            )
        )
    if deep is not None and lines:
        ends = [FEWEST, max(line.sizes[-1] for line in lines)]
        level = {"color": NEUTRAL, "dash": "dash", "width": 1.5}
        traces.append(
            go.Scatter(x=ends, y=rounded([deep.mean] * 2), mode="lines", name="30 networks", line=level)
        )
    axes = {"xaxis": {"type": "log", "tickvals": [2, 5, 10, 20, 50, 100, 200]}, **AXES}
    return figure(traces, "Ranked members that predict", "Mean KL (lower is better)", axes=axes)


def draw_methods(rows: Sequence[tuple[str, Number, bool]]) -> go.Figure:
    """Draw Fig. 5: a point for each row, samplers of known distributions in grey."""
    ordered = sorted(rows, key=lambda row: row[1].mean, reverse=True)
    traces = list[Any]()
    for name, reference, colour in (("methods", False, COLOURS[0]), ("known samplers", True, NEUTRAL)):
        own = [row for row in ordered if row[2] == reference]
        if not own:
            continue
        errors = bars([number.error for _, number, _ in own])
        traces.append(
            go.Scatter(
                x=rounded([number.mean for _, number, _ in own]),
                y=[label.replace("_", " ") for label, _, _ in own],
                error_x=errors,
                mode="markers",
                name=name,
                marker={"color": colour, "size": 10, "symbol": "square" if reference else "circle"},
                hovertemplate="KL %{x:.3g}<extra>%{y}</extra>",
            )
        )
    labels = [label.replace("_", " ") for label, _, _ in ordered]
    axes = {
        "xaxis": {"type": "log"},
        "yaxis": {"categoryorder": "array", "categoryarray": labels, "title": {"text": ""}, "dtick": 1},
    }
    return figure(traces, "Mean KL (lower is better)", "method", axes=axes)


def make_panels(results: Sequence[Result], direction: str) -> list[Panel]:
    """Return all figures that the results have, each for all cells and for each of them."""
    shared = common(results)
    cells = list(dict.fromkeys(result.cell for result in shared))
    cells.sort(key=lambda cell: (cell.inputs, cell.ratio, cell.noise))
    drawn: dict[str, dict[tuple[str, ...], go.Figure]] = {"methods": {}, "subsets": {}, "ranked": {}}
    for option, some in _choices(shared, cells):
        rows = [(row.label, summarise(some, row, direction), row.is_reference) for row in rows_of(some)]
        known = [row for row in rows if not math.isnan(row[1].mean)]
        drawn["methods"][option,] = draw_methods(known)
        lines = subset_lines(some, direction)
        if len(lines) > 1:
            drawn["subsets"][option,] = draw_subsets(lines)
        ranked = ranked_lines(some, direction)
        if ranked:
            deep = [number for label, number, _ in rows if label == DEEP]
            drawn["ranked"][option,] = draw_ranked(ranked, deep[0] if deep else None)
    return [_panel(name, figures) for name, figures in drawn.items() if figures]


def _choices(results: Sequence[Result], cells: Iterable[Cell]) -> list[tuple[str, list[Result]]]:
    """Return what a reader can choose: all cells, or one."""
    found = [(EVERY, list(results))]
    for cell in cells:
        found.append((str(cell), [result for result in results if result.cell == cell]))
    return found


TEXTS = {
    "methods": (
        "Whose uncertainty is right?",
        "Divergence from the exact posterior, with standard errors (Fig. 5). The grey samplers calibrate the "
        "score itself: functions drawn from the exact posterior score near 0, those with half its width, or "
        "that know nothing of the data (the prior), do not.",
    ),
    "subsets": (
        "How many members does it take?",
        "K networks beside random members of Layer Ensembles with K options for each layer (Fig. 2). "
        "With K options a layer ensemble stores as much as K networks, and has K³ members.",
    ),
    "ranked": (
        "Do the best members do better than all?",
        "Members ranked by greedy selection on validation points, scored on test points (Fig. 4). "
        "A star marks the lowest mean of a curve.",
    ),
}


def _panel(name: str, figures: dict[tuple[str, ...], go.Figure]) -> Panel:
    title, caption = TEXTS[name]
    return Panel(name, title, caption, figures, (Selector("problems", tuple(key[0] for key in figures)),))
