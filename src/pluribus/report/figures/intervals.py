"""Intervals: predicted numbers with their 95 % intervals, against the truth."""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from pluribus.report.figures.drawing import COLOURS, FINE, NEUTRAL, Panel, Selector, figure, rounded
from pluribus.report.groups import Entry, Group

# More bars than this cannot be told apart on a screen.
SHOWN = 100


@dataclass(frozen=True)
class Intervals:
    """Some test targets of one run, by rising prediction, and how many of all lie inside."""

    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    target: tuple[float, ...]
    coverage: float


def read_intervals(entry: Entry) -> Intervals | None:
    """Read up to `SHOWN` targets, evenly spaced, of the first run that has intervals; None without one."""
    found = [run.outcomes.columns for run in entry.runs if run.outcomes and "low" in run.outcomes.columns]
    if not found:
        return None
    columns = found[0]
    inside = (columns["low"] <= columns["target"]) & (columns["target"] <= columns["high"])
    order = np.argsort(columns["mean"], kind="stable")
    order = order[np.linspace(0, len(order) - 1, min(SHOWN, len(order))).astype(int)]
    mean, low, high, target = (tuple(columns[n][order].tolist()) for n in ("mean", "low", "high", "target"))
    return Intervals(mean, low, high, target, float(inside.mean()))


def draw_intervals(info: Intervals) -> go.Figure:
    """Draw a bar from end to end for each target, the prediction on it, the truth beside it."""
    places = list(range(1, len(info.mean) + 1))
    traces = [
        go.Bar(
            x=places,
            base=rounded(info.low, FINE),
            y=rounded([high - low for low, high in zip(info.low, info.high, strict=True)]),
            name="95 % interval",
            marker={"color": NEUTRAL, "opacity": 0.35},
            hoverinfo="skip",
        ),
        go.Scatter(
            x=places,
            y=rounded(info.mean, FINE),
            mode="markers",
            name="predicted",
            marker={"color": COLOURS[0], "symbol": "line-ew-open", "size": 8},
        ),
        _truth(info, True, "truth, inside", COLOURS[2], "circle"),
        _truth(info, False, "truth, outside", COLOURS[3], "x"),
    ]
    title = f"{info.coverage:.1%} of all targets lie inside"
    return figure(traces, "Test samples by rising prediction", "Target", title={"text": title}, bargap=0.2)


def _truth(info: Intervals, inside: bool, name: str, colour: str, symbol: str) -> go.Scatter:
    """Draw the targets that lie inside of their intervals, or those that lie outside."""
    places, targets = [], []
    bounds = zip(info.low, info.target, info.high, strict=True)
    for place, (low, target, high) in enumerate(bounds, start=1):
        if (low <= target <= high) is inside:
            places.append(place)
            targets.append(target)
    marker = {"color": colour, "symbol": symbol, "size": 7}
    return go.Scatter(x=places, y=rounded(targets, FINE), mode="markers", name=name, marker=marker)


def intervals_panel(group: Group) -> Panel | None:
    """Return the intervals by configuration; None where no run has intervals."""
    shown: dict[tuple[str, ...], go.Figure] = {}
    for entry in group.entries:
        info = read_intervals(entry)
        if info is not None:
            shown[entry.label,] = draw_intervals(info)
    if not shown:
        return None
    return Panel(
        "intervals",
        "Do its intervals hold the truth?",
        "Some test targets of the first seed with the 95 % intervals predicted for them: about one in twenty "
        "should lie outside, and narrow intervals say more than wide ones.",
        shown,
        (Selector("configuration", tuple(key[0] for key in shown)),),
    )
