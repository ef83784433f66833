"""Pareto: quality against cost; nothing beats the configurations on the front in both."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

import plotly.graph_objects as go

from pluribus.report.figures.drawing import NEUTRAL, Panel, Selector, bars, figure, look, rounded
from pluribus.report.groups import Entry, Group
from pluribus.report.tables import Cell, Column, columns_of

WIDTH = 44
"""Characters of a line under the pointer, that fit on a phone."""


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
        """By rising cost."""
        return sorted((point for point in self.points if point.on_front), key=lambda p: p.cost.mean)


def read_pareto(group: Group, quality: Column, cost: Column) -> Pareto:
    """Configurations by a quality and a cost."""
    cells = {e.label: (quality.cell(e), cost.cell(e)) for e in group.entries}
    known = {label: pair for label, pair in cells.items() if not math.isnan(pair[0].mean + pair[1].mean)}
    columns = columns_of(group)
    points = [
        Point(position, entry.label, *known[entry.label], _undominated(entry.label, known, quality), details)
        for position, entry in enumerate(group.entries)
        if entry.label in known
        for details in [describe(entry, columns)]
    ]
    return Pareto(quality, cost, tuple(points))


def describe(entry: Entry, columns: Sequence[Column]) -> str:
    """A configuration in full: its settings and all its numbers, a line each, or more where it is long."""
    settings = {n: v for n, v in entry.runs[0].method.items() if n not in ("kind", "version")}
    lines = [entry.label, *(f"{name}: {value}" for name, value in settings.items())]
    lines += [f"{column.title}: {column.cell(entry).show(column.digits)}" for column in columns]
    return "<br>".join(html.escape(part, quote=False) for line in lines for part in wrap(line, WIDTH))


def draw_pareto(info: Pareto) -> go.Figure:
    """A point with error bars for each configuration, and the front as steps."""
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
    axes = {"xaxis": {"rangemode": "tozero"}}
    return figure([front, *drawn], info.cost.title, f"{info.quality.title} ({arrow})", axes=axes)


def pareto_panel(group: Group) -> Panel | None:
    """Every quality against every cost; None where one of both is missing."""
    columns = columns_of(group)
    costs, qualities = [c for c in columns if c.is_cost], [c for c in columns if not c.is_cost]
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


def _undominated(label: str, cells: dict[str, tuple[Cell, Cell]], quality: Column) -> bool:
    """Whether no other is at least as good in both and better in one."""
    own_quality, own_cost = cells[label]
    for other_quality, other_cost in (pair for name, pair in cells.items() if name != label):
        worse = quality.better(own_quality.mean, other_quality.mean) or own_cost.mean < other_cost.mean
        better = quality.better(other_quality.mean, own_quality.mean) or other_cost.mean < own_cost.mean
        if better and not worse:
            return False
    return True
