"""The hypervolume after each trial, beside those of other searches."""

import html
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from pluribus.report.figures.drawing import COLOURS, Panel, figure, rounded
from pluribus.search.front import hypervolumes
from pluribus.search.study import Study


def hypervolume_panel(study: Study, others: Mapping[str, Sequence[Sequence[float]]]) -> Panel | None:
    """Return the hypervolume after each trial, beside those of other searches; None with one trial.

    Args:
        study: The search.
        others: By name, the losses of other searches with the same objectives, in their order.
    """
    if len(study.complete) < 2:
        return None
    everything = [point for losses in others.values() for point in losses]
    own = study.losses
    curves = {study.sampler: hypervolumes(own, everything)}
    for name, losses in others.items():
        curves[name] = hypervolumes(losses, [*own, *everything])
    traces = []
    for position, (name, curve) in enumerate(curves.items()):
        traces.append(
            go.Scatter(
                x=list(range(1, len(curve) + 1)),
                y=rounded(curve),
                mode="lines",
                line={"color": COLOURS[position % len(COLOURS)], "shape": "hv", "width": 2},
                name=name,
                hovertemplate="after trial %{x}: %{y}<extra>" + html.escape(name) + "</extra>",
            )
        )
    beside = "" if others else " For random search beside it, run one and name its folder with --against."
    return Panel(
        "hypervolume",
        "How the search went",
        "The share of the space of all objectives that the front dominates, after each trial; 1 would be the "
        f"best value of every objective at once.{beside}",
        {(): figure(traces, "trials measured", "hypervolume")},
    )
