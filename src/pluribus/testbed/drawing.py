"""Drawing the testbed's figures from what was read of the results."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from pluribus.report.columns import Cell as Number
from pluribus.report.figures.drawing import COLOURS, NEUTRAL, bars, figure, look, rounded
from pluribus.testbed.curves import FEWEST, Line

# Scores of few members are thousands of times those of many.
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
