"""The front: all trials by quality and cost, and the one to take."""

import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from pluribus.report.figures.cost_axis import cost_axis
from pluribus.report.figures.drawing import (
    NEUTRAL,
    OUTSIDE,
    Panel,
    Selector,
    figure,
    look,
    robust_range,
    rounded,
)
from pluribus.search.figures.trial_text import describe, kind_of
from pluribus.search.objectives import COSTS, Objective
from pluribus.search.study import Study, Trial

SHOWN_COSTS = ("multiply_adds", "parameters")


def front_panel(study: Study, chosen: Trial) -> Panel | None:
    """Return all trials by quality and cost, with the front and the choice; None without trials."""
    qualities = [one for one in study.objectives if not one.is_cost]
    if not study.complete:
        return None
    drawn: dict[tuple[str, ...], go.Figure] = {}
    for quality in qualities:
        for cost in SHOWN_COSTS:
            drawn[quality.title, COSTS[cost]] = _draw_front(study, chosen, quality, cost)
    return Panel(
        "front",
        "Quality against cost",
        "Each point is a trial, measured on validation data. Those on the dotted line are beaten by no other "
        "in both; the star is the one to take. Point at one for its settings.",
        drawn,
        (
            Selector("quality", tuple(one.title for one in qualities)),
            Selector("cost", tuple(COSTS[cost] for cost in SHOWN_COSTS)),
        ),
    )


def _draw_front(study: Study, chosen: Trial, quality: Objective, cost: str) -> go.Figure:
    kinds = list(dict.fromkeys(kind_of(trial) for trial in study.complete))
    traces: list[Any] = [_line(study, quality, cost)]
    for position, kind in enumerate(kinds):
        trials = [trial for trial in study.complete if kind_of(trial) == kind]
        traces.append(_points(trials, quality, cost, kind, look(position)["marker"]))
    star = {"color": OUTSIDE, "symbol": "star", "size": 18, "line": {"width": 1, "color": "#ffffff"}}
    traces.append(_points([chosen], quality, cost, "take this one", star))
    arrow = "higher is better" if quality.higher else "lower is better"
    axes: dict[str, Any] = {"xaxis": cost_axis([_cost(trial, cost) for trial in study.complete], COSTS[cost])}
    qualities = [trial.values[quality.name] for trial in study.complete]
    span = robust_range(qualities, kept=[chosen.values[quality.name]])
    if span is not None:
        axes["yaxis"] = {"range": rounded(span)}
    return figure(traces, COSTS[cost], f"{quality.title} ({arrow})", axes=axes)


def _line(study: Study, quality: Objective, cost: str) -> go.Scatter:
    """Return the front of one quality and one cost as steps."""
    ordered = sorted(study.complete, key=lambda t: (_cost(t, cost), quality.loss(t.values[quality.name])))
    front: list[Trial] = []
    best = math.inf
    for trial in ordered:
        loss = quality.loss(trial.values[quality.name])
        if loss < best:
            best = loss
            front.append(trial)
    return go.Scatter(
        x=rounded([_cost(trial, cost) for trial in front]),
        y=rounded([trial.values[quality.name] for trial in front]),
        mode="lines",
        line={"color": NEUTRAL, "dash": "dot", "shape": "hv", "width": 1.5},
        name="front",
        hoverinfo="skip",
    )


def _points(trials: Sequence[Trial], quality: Objective, cost: str, name: str, marker: Any) -> go.Scatter:
    return go.Scatter(
        x=rounded([_cost(trial, cost) for trial in trials]),
        y=rounded([trial.values[quality.name] for trial in trials]),
        mode="markers",
        marker={"size": 9, **marker},
        name=name,
        text=[describe(trial) for trial in trials],
        hovertemplate="%{text}<extra></extra>",
    )


def _cost(trial: Trial, name: str) -> float:
    return trial.cost.get(name, math.nan)
