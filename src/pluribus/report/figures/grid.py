"""Grid: a metric by the number of inputs and of exits of a single-architecture ensemble.

Figure 3 of Ferianc, Fan & Rodrigues, "SAE: Single architecture ensemble neural networks", BMVC 2024. N inputs
and K of D exits have names of their own where they are earlier methods, Section 3.1:

    N = 1, K = 1         a single exit
    N = 1, K ≥ 2         early exits
    N ≥ 2, K = 1         MIMO
    N ≥ 2, K = D         MIMMO
    N ≥ 2, 1 < K < D     in between
"""

import math
from dataclasses import dataclass, replace

import plotly.graph_objects as go

from pluribus.mechanisms.exits.pairs import kind_of
from pluribus.report.figures.drawing import INSIDE, OUTSIDE, Figures, Panel, Selector, figure, rounded
from pluribus.report.figures.preference import depth_of
from pluribus.report.groups import Entry, Group
from pluribus.report.tables import Cell, Column, columns_of, metric_column, summarise

KIND = "sae"
MORE = ("macro_f1", "class_conditional_ece")
"""Metrics of the paper that the table has no column for."""
CASES = {
    "single_exit": "single exit",
    "early_exit": "early exits",
    "mimo": "MIMO",
    "mimmo": "MIMMO",
    "in_between": "in between",
}
SCALE = [[0.0, "#eef3fb"], [1.0, INSIDE]]


@dataclass(frozen=True)
class Place:
    """The runs with one number of inputs and of exits.

    Args:
        inputs: N.
        exits: K.
        case: What the paper calls it; empty where the number of depths is not known and matters.
        cell: The metric over all runs.
        configurations: How many differ in other settings.
    """

    inputs: int
    exits: int
    case: str
    cell: Cell
    configurations: int


@dataclass(frozen=True)
class Grid:
    """A metric at every place that was run; the best one is marked."""

    column: Column
    places: tuple[Place, ...]


def case_of(inputs: int, exits: int, depth: int) -> str:
    """What the paper calls N inputs and K of D exits; empty where D is 0, not known, and matters."""
    matters = inputs > 1 and exits > 1
    return "" if matters and not depth else CASES[kind_of(inputs, exits, depth)]


def read_grid(group: Group, column: Column) -> Grid:
    """Of all configurations of the method that have the metric."""
    found: dict[tuple[int, int], list[Entry]] = {}
    for entry in group.entries:
        if entry.kind == KIND and math.isfinite(column.cell(entry).mean):
            settings = entry.runs[0].method
            found.setdefault((settings["inputs"], settings["exits"]), []).append(entry)
    depth = max((depth_of(entry) for entries in found.values() for entry in entries), default=0)
    places = [
        Place(*place, case_of(*place, depth), summarise(_values(entries, column)), len(entries))
        for place, entries in sorted(found.items())
    ]
    best = min((_badness(place, column) for place in places), default=math.nan)
    marked = (replace(one, cell=replace(one.cell, best=_badness(one, column) == best)) for one in places)
    return Grid(column, tuple(marked))


def draw_grid(info: Grid) -> go.Figure:
    """A cell for each place: the stronger its colour, the better; the best one has a frame."""
    inputs, exits = (sorted({getattr(p, name) for p in info.places}) for name in ("inputs", "exits"))
    at = {(place.inputs, place.exits): place for place in info.places}
    rows = [[at.get((n, k)) for n in inputs] for k in exits]
    trace = go.Heatmap(
        x=[str(n) for n in inputs],
        y=[str(k) for k in exits],
        z=[rounded([place.cell.mean if place else math.nan for place in row]) for row in rows],
        text=[[_told(place, info.column) for place in row] for row in rows],
        texttemplate="%{text}",
        colorscale=SCALE,
        reversescale=info.column.lower_is_better,
        showscale=False,
        xgap=2,
        ygap=2,
        name=info.column.title,
        hoverongaps=False,
        hovertemplate="N = %{x}, K = %{y}<br>%{text}<extra></extra>",
    )
    axis = {"type": "category", "showgrid": False, "zeroline": False}
    frames = [_frame(inputs.index(p.inputs), exits.index(p.exits)) for p in info.places if p.cell.best]
    return figure(
        [trace], "Inputs N", "Exits K of each input", axes={"xaxis": axis, "yaxis": axis}, shapes=frames
    )


def grid_panel(group: Group) -> Panel | None:
    """By metric; None without two places to compare."""
    grids = [read_grid(group, column) for column in (*columns_of(group), *map(metric_column, MORE))]
    shown: Figures = {(one.column.title,): draw_grid(one) for one in grids if len(one.places) > 1}
    if not shown:
        return None
    return Panel(
        "grid",
        "How many inputs, how many exits?",
        "Each cell is a number of inputs and of exits: the mean over its runs with their standard error, and "
        "what the case is called. The stronger the colour, the better; the best has a frame.",
        shown,
        (Selector("metric", tuple(title for (title,) in shown)),),
    )


def _values(entries: list[Entry], column: Column) -> list[float]:
    return [column.value(run) for entry in entries for run in entry.runs]


def _badness(place: Place, column: Column) -> float:
    return place.cell.mean if column.lower_is_better else -place.cell.mean


def _told(place: Place | None, column: Column) -> str:
    if place is None:
        return ""
    shown = place.cell.show(column.digits).replace("±", " ± ")
    lines = [f"<b>{shown}</b>" if place.cell.best else shown, place.case]
    if place.configurations > 1:
        lines.append(f"{place.configurations} configurations")
    return "<br>".join(line for line in lines if line)


def _frame(x: int, y: int) -> dict[str, object]:
    ends = {"x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5}
    return {"type": "rect", "line": {"color": OUTSIDE, "width": 3}, **ends}
