"""The importance of settings, as bars."""

from collections.abc import Mapping

import plotly.graph_objects as go

from pluribus.report.figures.drawing import INSIDE, Panel, Selector, figure, rounded
from pluribus.search.importance import importances
from pluribus.search.study import Study

MOST_BARS = 12


def importance_panel(study: Study) -> Panel | None:
    """Return the importance of settings for each objective; None with too few trials."""
    drawn: dict[tuple[str, ...], go.Figure] = {}
    parameters = [trial.parameters for trial in study.complete]
    for one in study.objectives:
        losses = [one.loss(trial.values[one.name]) for trial in study.complete]
        found = importances(parameters, losses)
        if any(found.values()):
            drawn[one.title,] = _draw_bars(found)
    if not drawn:
        return None
    return Panel(
        "importance",
        "Which settings matter",
        "The share of the differences between trials that a setting explains by itself, beyond what chance "
        "would. With few trials it is rough.",
        drawn,
        (Selector("objective", tuple(title for (title,) in drawn)),),
    )


def _draw_bars(found: Mapping[str, float]) -> go.Figure:
    # Plotly draws the first bar at the bottom.
    pairs = list(found.items())[:MOST_BARS][::-1]
    bar = go.Bar(
        x=rounded([value for _, value in pairs]),
        y=[name for name, _ in pairs],
        orientation="h",
        marker={"color": INSIDE},
        name="importance",
        hovertemplate="%{y}: %{x}<extra></extra>",
    )
    axes = {"xaxis": {"range": [0, 1]}, "yaxis": {"automargin": True, "title": {"text": ""}}}
    return figure([bar], "share explained", "", axes=axes)
