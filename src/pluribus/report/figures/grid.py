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
from collections.abc import Sequence
from dataclasses import dataclass, replace

import plotly.graph_objects as go

from pluribus.mechanisms.exits.pairs import kind_of
from pluribus.report.columns import Cell, Column, columns_of, metric_column, summarise
from pluribus.report.figures.courses import depth_of
from pluribus.report.figures.drawing import INSIDE, OUTSIDE, Panel, Selector, figure, rounded
from pluribus.report.groups import Entry, Group

KIND = "sae"
# Metrics of the paper that the table has no column for.
MORE = ("macro_f1", "class_conditional_ece")
# The names of the cases, as the paper writes them.
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
        case: Its name in the paper; empty where that depends on the number of depths, which is not known.
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
    """Return the name of N inputs and K of D exits; empty where it depends on D, and D is not known (0)."""
    depends_on_depth = inputs > 1 and exits > 1
    if depends_on_depth and not depth:
        return ""
    return CASES[kind_of(inputs, exits, depth)]


def read_grid(group: Group, column: Column) -> Grid:
    """Read the grid of all configurations of the method that have the metric."""
    found: dict[tuple[int, int], list[Entry]] = {}
    for entry in group.entries:
        if entry.kind == KIND and math.isfinite(column.cell(entry).mean):
            settings = entry.runs[0].method
            found.setdefault((settings["inputs"], settings["exits"]), []).append(entry)
    every = [entry for entries in found.values() for entry in entries]
    depth = max(map(depth_of, every), default=0)
    places = []
    for (inputs, exits), entries in sorted(found.items()):
        cell = summarise(_values(entries, column))
        places.append(Place(inputs, exits, case_of(inputs, exits, depth), cell, len(entries)))
    return Grid(column, _with_best(places, column))


def _with_best(places: Sequence[Place], column: Column) -> tuple[Place, ...]:
    """Mark the best places; equal means are all best."""
    if not places:
        return ()
    best = min(_badness(place, column) for place in places)
    marked = []
    for place in places:
        cell = replace(place.cell, best=_badness(place, column) == best)
        marked.append(replace(place, cell=cell))
    return tuple(marked)


def draw_grid(info: Grid) -> go.Figure:
    """Draw a cell for each place: the stronger its colour, the better; the best one has a frame."""
    inputs = sorted({place.inputs for place in info.places})
    exits = sorted({place.exits for place in info.places})
    at = {(place.inputs, place.exits): place for place in info.places}
    numbers, texts = [], []
    for k in exits:
        # A place that was not run is a gap.
        row = [at.get((n, k)) for n in inputs]
        numbers.append(rounded([place.cell.mean if place else math.nan for place in row]))
        texts.append([_told(place, info.column) for place in row])
    trace = go.Heatmap(
        x=list(map(str, inputs)),
        y=list(map(str, exits)),
        z=numbers,
        text=texts,
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
    """Return the grids by metric; None without two places to compare."""
    shown: dict[tuple[str, ...], go.Figure] = {}
    for column in (*columns_of(group), *map(metric_column, MORE)):
        grid = read_grid(group, column)
        if len(grid.places) > 1:
            shown[column.title,] = draw_grid(grid)
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
    """Return the metric of all runs."""
    return [column.value(run) for entry in entries for run in entry.runs]


def _badness(place: Place, column: Column) -> float:
    """Return the metric so that lower is better."""
    return place.cell.mean if column.lower_is_better else -place.cell.mean


def _told(place: Place | None, column: Column) -> str:
    """Return the text of a cell; empty where nothing was run."""
    if place is None:
        return ""
    shown = place.cell.show(column.digits).replace("±", " ± ")
    lines = [f"<b>{shown}</b>" if place.cell.best else shown, place.case]
    if place.configurations > 1:
        lines.append(f"{place.configurations} configurations")
    return "<br>".join(line for line in lines if line)


def _frame(x: int, y: int) -> dict[str, object]:
    """Return a frame around the cell at a position."""
    ends = {"x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5}
    return {"type": "rect", "line": {"color": OUTSIDE, "width": 3}, **ends}
