"""Drawing: what all figures share, so that a configuration looks the same in each of them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

# Readable on white and on black.
COLOURS = (
    *("#3b7dd8", "#d9720a", "#2a9d5c", "#d1495b", "#8e63ce"),
    *("#1397a8", "#a8761c", "#c757a0", "#6b7f2a", "#7a7f8a"),
)
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "x", "pentagon", "hexagram")
DASHES = ("solid", "dash", "dot", "dashdot")
INSIDE, OUTSIDE, NEUTRAL = COLOURS[0], COLOURS[3], COLOURS[9]
# Figures of a number: a page that is sent around should be small.
DIGITS = 4
# Values so many times the distance of the quartiles away from them would squeeze all others together.
FAR = 6.0
# Figures of numbers that differ by little of their size, such as years.
FINE = 7


# Figures by the options chosen, in the order of the selectors.
Figures = Mapping[tuple[str, ...], go.Figure]


@dataclass(frozen=True)
class Selector:
    """A choice that the reader has: its name, and the options with the first one shown."""

    name: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Panel:
    """A figure of the page.

    Args:
        name: Name of its files and of its place on the page.
        title: Its head.
        caption: How to read it, in a sentence or two.
        figures: All figures that can be chosen.
        selectors: The choices of the reader.
    """

    name: str
    title: str
    caption: str
    figures: Figures
    selectors: tuple[Selector, ...] = ()

    @property
    def first(self) -> go.Figure:
        """Return the figure that is shown before anything is chosen."""
        return self.figures[tuple(selector.options[0] for selector in self.selectors)]


def look(position: int) -> dict[str, Any]:
    """Return the line and the markers of the configuration at a position among all."""
    # Colours first; with more configurations than colours, dashes and symbols tell them apart.
    colour, again = COLOURS[position % len(COLOURS)], position // len(COLOURS)
    return {
        "line": {"color": colour, "dash": DASHES[again % len(DASHES)]},
        "marker": {"color": colour, "symbol": SYMBOLS[position % len(SYMBOLS)], "size": 8},
    }


def figure(traces: Sequence[Any], x: str, y: str, **layout: Any) -> go.Figure:
    """Return a figure with titled axes, without a template: the page brings its own colours."""
    axes = {"xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}}}
    for name, settings in layout.pop("axes", {}).items():
        axes[name] = axes.get(name, {}) | settings
    return go.Figure(list(traces), {**axes, **layout, "template": None})


def rounded(values: Sequence[float], digits: int = DIGITS) -> list[float | None]:
    """Return numbers short enough for a page that is sent around; a gap where one is not finite."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]


def robust_range(values: Sequence[float], kept: Sequence[float] = ()) -> tuple[float, float] | None:
    """Return a range that holds all values but those far from most of them; None where none is far.

    Far is more than `FAR` times the distance of the quartiles beyond them. Fewer than four values have no
    outliers.

    Args:
        values: All values; those that are not finite are ignored.
        kept: Those among them that the range must hold, however far they are.
    """
    known = sorted(value for value in values if math.isfinite(value))
    if len(known) < 4:
        return None
    low, _, high = statistics.quantiles(known, n=4, method="inclusive")
    # Values that are nearly all equal still need room.
    reach = FAR * max(high - low, 0.02 * abs(high), 1e-9)
    near = [value for value in known if value in kept or low - reach <= value <= high + reach]
    if len(near) == len(known):
        return None
    margin = 0.08 * (near[-1] - near[0]) or reach / FAR
    return near[0] - margin, near[-1] + margin


def robust_span(curves: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """Return a range that holds all curves but those far beyond most of them; None where none is."""
    known = [[value for value in curve if math.isfinite(value)] for curve in curves]
    known = [curve for curve in known if curve]
    lows, highs = [min(curve) for curve in known], [max(curve) for curve in known]
    below, above = robust_range(lows), robust_range(highs)
    if below is None and above is None:
        return None
    low = min(lows) if below is None else below[0]
    high = max(highs) if above is None else above[1]
    return low, high


def bars(errors: Sequence[float]) -> dict[str, Any]:
    """Return standard errors as thin bars; none where they are not known."""
    known = [error if math.isfinite(error) else 0.0 for error in errors]
    return {"type": "data", "array": rounded(known), "thickness": 1}


def diagonal(name: str) -> go.Scatter:
    """Return the line on which both axes agree."""
    line = {"color": NEUTRAL, "dash": "dash", "width": 1}
    return go.Scatter(x=[0, 1], y=[0, 1], mode="lines", name=name, line=line, hoverinfo="skip")
