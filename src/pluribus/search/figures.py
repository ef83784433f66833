"""Figures of a search: the front, the hypervolume, importances, and all trials on parallel axes."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from pluribus.report.figures.cost_axis import cost_axis
from pluribus.report.figures.drawing import (
    COLOURS,
    INSIDE,
    NEUTRAL,
    OUTSIDE,
    Panel,
    Selector,
    figure,
    look,
    robust_range,
    rounded,
)
from pluribus.search.front import hypervolumes
from pluribus.search.importance import importances
from pluribus.search.objectives import COSTS, Objective
from pluribus.search.space import METHOD
from pluribus.search.study import Study, Trial

SHOWN_COSTS = ("multiply_adds", "parameters")
MOST_BARS = 12
ALL = "all methods"
FADED = 0.25


def front_panel(study: Study, chosen: Trial) -> Panel | None:
    """Return all trials by quality and cost, with the front and the choice; None without trials."""
    qualities = [one for one in study.objectives if not one.is_cost]
    if not study.complete:
        return None
    drawn = {}
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
    span = robust_range([trial.values[quality.name] for trial in study.complete])
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


def describe(trial: Trial) -> str:
    """Return the configuration and the values of a trial, a line each, for the pointer."""
    lines = [f"trial {trial.number}: {trial.label}"]
    lines += [f"{name}: {value:.4g}" for name, value in trial.values.items()]
    return "<br>".join(html.escape(line, quote=False) for line in lines)


def _cost(trial: Trial, name: str) -> float:
    return trial.cost.get(name, math.nan)


def kind_of(trial: Trial) -> str:
    """Return the name of the method of a trial."""
    return trial.label.partition("(")[0].partition(",")[0]


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


def importance_panel(study: Study) -> Panel | None:
    """Return the importance of settings for each objective; None with too few trials."""
    drawn = {}
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


def parallel_panel(study: Study) -> Panel | None:
    """Return a line for each trial over all of its settings and objectives; None with one trial."""
    if len(study.complete) < 2:
        return None
    drawn = {}
    kinds = list(dict.fromkeys(kind_of(trial) for trial in study.complete))
    for kind in [ALL, *kinds] if len(kinds) > 1 else kinds:
        trials = [trial for trial in study.complete if kind in (ALL, kind_of(trial))]
        if len(trials) > 1:
            drawn[kind,] = _draw_parallel(study, trials)
    if not drawn:
        return None
    return Panel(
        "parallel",
        "All trials, setting by setting",
        "Each line is a trial: its settings from left to right, then its objectives, every axis from its "
        "least to its greatest value. Strong lines are on the front.",
        drawn,
        (Selector("method", tuple(kind for (kind,) in drawn)),),
    )


def _draw_parallel(study: Study, trials: Sequence[Trial]) -> go.Figure:
    # Settings that only some of the trials have would leave gaps in the lines.
    shared = [name for name in trials[0].parameters if all(name in trial.parameters for trial in trials)]
    columns: dict[str, list[Any]] = {}
    for name in shared:
        columns[name] = [trial.parameters[name] for trial in trials]
    for one in study.objectives:
        columns[one.title] = [trial.values[one.name] for trial in trials]
    front = {trial.number for trial in study.front}
    kinds = list(dict.fromkeys(kind_of(trial) for trial in study.complete))
    scaled = {name: _scaled(values) for name, values in columns.items()}
    traces = []
    for position, trial in enumerate(trials):
        strong = trial.number in front
        traces.append(
            go.Scatter(
                x=[_short(name) for name in columns],
                y=rounded([values[position] for values in scaled.values()]),
                mode="lines+markers",
                line={
                    "color": COLOURS[kinds.index(kind_of(trial)) % len(COLOURS)],
                    "width": 2.5 if strong else 1,
                },
                opacity=1.0 if strong else FADED,
                name=trial.label,
                text=[f"{name}: {_told(values[position])}" for name, values in columns.items()],
                hovertemplate=describe(trial) + "<br><b>%{text}</b><extra></extra>",
                showlegend=False,
            )
        )
    ends = [
        {
            "x": _short(name),
            "y": place,
            "text": text,
            "showarrow": False,
            "yshift": shift,
            "font": {"size": 11},
        }
        for name, values in columns.items()
        for place, text, shift in _ends(values)
    ]
    axes = {
        "yaxis": {"visible": False, "range": [-0.15, 1.15]},
        "xaxis": {"type": "category", "title": {"text": ""}, "automargin": True},
    }
    return figure(traces, "", "", axes=axes, annotations=ends)


def _scaled(values: Sequence[Any]) -> list[float]:
    """Return values on an axis from 0 to 1; words by the order in which they come."""
    if not all(isinstance(value, int | float) for value in values):
        words = list(dict.fromkeys(map(str, values)))
        return [words.index(str(value)) / max(1, len(words) - 1) for value in values]
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 0.5 for value in values]


def _ends(values: Sequence[Any]) -> list[tuple[float, str, int]]:
    """Return the texts at both ends of an axis: its place, the text, and how far to move it."""
    if all(isinstance(value, int | float) for value in values):
        low, high = _told(min(values)), _told(max(values))
    else:
        words = list(dict.fromkeys(map(str, values)))
        low, high = words[0], words[-1]
    if low == high:
        return [(0.5, low, 12)]
    return [(0.0, low, -12), (1.0, high, 12)]


def _told(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else str(value)


def _short(name: str) -> str:
    """Return the name of a parameter without that of its method."""
    return name if name == METHOD else name.split(".", 1)[-1]
