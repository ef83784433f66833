"""The axis of costs, on which twice as much is one step, and names of points beyond the edge of a figure."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pluribus.report.figures.drawing import look, rounded

# Multiples on the axis of costs.
TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
# Room beside the first and the last point, as a factor.
ROOM = 1.25


@dataclass(frozen=True)
class Place:
    """A configuration in the figure: its position among all, its name, its cost and its quality."""

    position: int
    label: str
    cost: float
    quality: float


def cost_axis(costs: Sequence[float], title: str) -> dict[str, Any]:
    """Return a logarithmic axis, with ticks that people use where costs are multiples (`×` in the title)."""
    # A cost of 0 has no logarithm.
    if not costs or min(costs) <= 0:
        return {"rangemode": "tozero"}
    low, high = min(costs) / ROOM, max(costs) * ROOM
    axis: dict[str, Any] = {"type": "log", "range": rounded([math.log10(low), math.log10(high)])}
    if title.endswith("×"):
        shown = [tick for tick in TICKS if low <= tick <= high]
        axis |= {"tickvals": shown, "ticktext": [f"{tick:g}" for tick in shown]}
    return axis


def far_out(places: Sequence[Place], span: tuple[float, float] | None, digits: int) -> list[dict[str, Any]]:
    """Return a note at the edge for each configuration whose quality is beyond the range of the axis."""
    if span is None:
        return []
    return [_note(place, span, digits) for place in places if not span[0] <= place.quality <= span[1]]


def _note(place: Place, span: tuple[float, float], digits: int) -> dict[str, Any]:
    """Return the name and the number of a configuration, at the edge that it lies beyond."""
    edge, arrow, anchor = (span[0], "↓", "bottom")
    if place.quality > span[1]:
        edge, arrow, anchor = (span[1], "↑", "top")
    return {
        # On a logarithmic axis notes are placed by the logarithm.
        "x": math.log10(place.cost) if place.cost > 0 else place.cost,
        "y": edge,
        "text": f"{arrow} {html.escape(place.label)} {place.quality:.{digits}f}",
        "showarrow": False,
        "yanchor": anchor,
        "font": {"size": 11, "color": look(place.position)["marker"]["color"]},
    }
