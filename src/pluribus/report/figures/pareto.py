"""Pareto: quality against cost; nothing beats the configurations on the front in both."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from pluribus.report.columns import Cell, Column, columns_of
from pluribus.report.figures.cost_axis import Place, cost_axis, far_out
from pluribus.report.figures.drawing import (
    NEUTRAL,
    Panel,
    Selector,
    bars,
    figure,
    look,
    robust_range,
    rounded,
)
from pluribus.report.figures.front import undominated
from pluribus.report.groups import Entry, Group

# Characters of a line under the pointer, that fit on a phone.
WIDTH = 44
# Settings of a method that say nothing to a reader.
HIDDEN = ("kind", "version")


@dataclass(frozen=True)
class Point:
    """A configuration: its position among all, quality, cost, and whether it is on the front."""

    position: int
    label: str
    quality: Cell
    cost: Cell
    on_front: bool
    details: str


@dataclass(frozen=True)
class Pareto:
    """The configurations that have both numbers."""

    quality: Column
    cost: Column
    points: tuple[Point, ...]

    @property
    def front(self) -> list[Point]:
        """Return the points on the front, by rising cost."""
        return sorted((point for point in self.points if point.on_front), key=lambda p: p.cost.mean)


def read_pareto(group: Group, quality: Column, cost: Column) -> Pareto:
    """Read the configurations that have a quality and a cost."""
    known: dict[str, tuple[Cell, Cell]] = {}
    for entry in group.entries:
        pair = quality.cell(entry), cost.cell(entry)
        if not math.isnan(pair[0].mean + pair[1].mean):
            known[entry.label] = pair
    columns = columns_of(group)
    points = []
    for position, entry in enumerate(group.entries):
        if entry.label in known:
            on_front = undominated(entry.label, known, quality)
            details = describe(entry, columns)
            points.append(Point(position, entry.label, *known[entry.label], on_front, details))
    return Pareto(quality, cost, tuple(points))


def describe(entry: Entry, columns: Sequence[Column]) -> str:
    """Return the settings of a configuration and all its numbers, a line each, long lines broken."""
    lines = [entry.label]
    for name, value in entry.runs[0].method.items():
        if name not in HIDDEN:
            lines.append(f"{name}: {value}")
    for column in columns:
        lines.append(f"{column.title}: {column.cell(entry).show(column.digits)}")
    parts: list[str] = []
    for line in lines:
        parts += wrap(line, WIDTH)
    return "<br>".join(html.escape(part, quote=False) for part in parts)


def draw_pareto(info: Pareto) -> go.Figure:
    """Draw a point with error bars for each configuration, and the front as steps."""
    front = go.Scatter(
        x=rounded([point.cost.mean for point in info.front]),
        y=rounded([point.quality.mean for point in info.front]),
        mode="lines",
        line={"color": NEUTRAL, "dash": "dot", "shape": "hv", "width": 1.5},
        name="front",
        hoverinfo="skip",
    )
    drawn = [
        go.Scatter(
            x=rounded([point.cost.mean]),
            y=rounded([point.quality.mean]),
            error_x=bars([point.cost.error]),
            error_y=bars([point.quality.error]),
            mode="markers",
            marker=look(point.position)["marker"] | {"size": 12},
            name=point.label,
            text=[point.details],
            hovertemplate="%{text}<extra></extra>",
        )
        for point in info.points
    ]
    arrow = "lower is better" if info.quality.lower_is_better else "higher is better"
    costs = [point.cost.mean for point in info.points]
    qualities = [point.quality.mean for point in info.points]
    # A reader looks for the best first: only worse ones may lie beyond the edge.
    best = (min if info.quality.lower_is_better else max)(qualities, default=math.nan)
    span = robust_range(qualities, kept=[best])
    axes: dict[str, dict[str, Any]] = {
        "xaxis": cost_axis(costs, info.cost.title),
        "yaxis": {},
    }
    if span is not None:
        axes["yaxis"]["range"] = rounded(span)
    title = f"{info.quality.title} ({arrow})"
    places = [
        Place(point.position, point.label, point.cost.mean, point.quality.mean) for point in info.points
    ]
    far = far_out(places, span, info.quality.digits)
    return figure([front, *drawn], info.cost.title, title, axes=axes, annotations=far)


def pareto_panel(group: Group) -> Panel | None:
    """Return every quality against every cost; None where one of both is missing."""
    columns = columns_of(group)
    costs, qualities = [c for c in columns if c.is_cost], [c for c in columns if not c.is_cost]
    # The first of each is shown first: costs that do not depend on the machine, and proper scores.
    costs.sort(key=lambda column: column.name != "multiply_adds")
    qualities.sort(key=lambda column: column.name not in ("nll", "gaussian_nll"))
    if not costs or not qualities:
        return None
    return Panel(
        "pareto",
        "Quality against cost",
        "Each point is a configuration, with standard errors. Those on the dotted line are beaten by no "
        "other in both. Point at one, or use the arrow keys, for its settings and numbers.",
        {(q.title, c.title): draw_pareto(read_pareto(group, q, c)) for q in qualities for c in costs},
        (
            Selector("quality", tuple(column.title for column in qualities)),
            Selector("cost", tuple(column.title for column in costs)),
        ),
    )
