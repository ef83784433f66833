"""Parallel axes: a line for each trial over all of its settings and objectives."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from pluribus.report.figures.drawing import COLOURS, Panel, Selector, figure, rounded
from pluribus.search.figures.trial_text import describe, kind_of, told
from pluribus.search.space import METHOD
from pluribus.search.study import Study, Trial

ALL = "all methods"
FADED = 0.25
"""Opacity of trials that are not on the front."""


def parallel_panel(study: Study) -> Panel | None:
    """Return a line for each trial over all of its settings and objectives; None with one trial."""
    kinds = list(dict.fromkeys(kind_of(trial) for trial in study.complete))
    drawn: dict[tuple[str, ...], go.Figure] = {}
    if len(kinds) > 1:
        drawn[ALL,] = _draw(study, study.complete)
    for kind in kinds:
        trials = [trial for trial in study.complete if kind_of(trial) == kind]
        if len(trials) > 1:
            drawn[kind,] = _draw(study, trials)
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


def columns_of(study: Study, trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """Return the settings that all trials have, and the objectives, each with its values."""
    columns: dict[str, list[Any]] = {}
    for name in trials[0].parameters:
        # Settings that only some of the trials have would leave gaps in the lines.
        if all(name in trial.parameters for trial in trials):
            columns[_short(name)] = [trial.parameters[name] for trial in trials]
    for one in study.objectives:
        columns[one.title] = [trial.values[one.name] for trial in trials]
    return columns


def _draw(study: Study, trials: Sequence[Trial]) -> go.Figure:
    columns = columns_of(study, trials)
    scaled = [_scaled(values) for values in columns.values()]
    front = {trial.number for trial in study.front}
    kinds = list(dict.fromkeys(kind_of(trial) for trial in study.complete))
    traces = []
    for position, trial in enumerate(trials):
        colour = COLOURS[kinds.index(kind_of(trial)) % len(COLOURS)]
        heights = [values[position] for values in scaled]
        texts = [f"{name}: {told(values[position])}" for name, values in columns.items()]
        traces.append(_line(trial, list(columns), heights, texts, colour, trial.number in front))
    ends: list[dict[str, Any]] = []
    for name, values in columns.items():
        ends += _ends(name, values)
    axes = {
        "yaxis": {"visible": False, "range": [-0.15, 1.15]},
        "xaxis": {"type": "category", "title": {"text": ""}, "automargin": True},
    }
    return figure(traces, "", "", axes=axes, annotations=ends, hovermode="closest")


def _line(
    trial: Trial, names: list[str], heights: list[float], texts: list[str], colour: str, strong: bool
) -> go.Scatter:
    return go.Scatter(
        x=names,
        y=rounded(heights),
        mode="lines+markers",
        line={"color": colour, "width": 2.5 if strong else 1},
        opacity=1.0 if strong else FADED,
        name=trial.label,
        text=texts,
        hovertemplate=describe(trial) + "<br><b>%{text}</b><extra></extra>",
        showlegend=False,
    )


def _scaled(values: Sequence[Any]) -> list[float]:
    """Return values on an axis from 0 to 1; words by the order in which they come."""
    numbers = list(values)
    if not _are_numbers(values):
        words = list(dict.fromkeys(map(str, values)))
        numbers = [words.index(str(value)) for value in values]
    low, high = min(numbers), max(numbers)
    if low == high:
        return [0.5] * len(numbers)
    return [(value - low) / (high - low) for value in numbers]


def _ends(name: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the texts at both ends of an axis."""
    words = list(dict.fromkeys(map(str, values)))
    low, high = words[0], words[-1]
    if _are_numbers(values):
        low, high = told(min(values)), told(max(values))
    common = {"x": name, "showarrow": False, "font": {"size": 11}}
    if low == high:
        return [{**common, "y": 0.5, "text": low, "yshift": 12}]
    return [
        {**common, "y": 0.0, "text": low, "yshift": -12},
        {**common, "y": 1.0, "text": high, "yshift": 12},
    ]


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _short(name: str) -> str:
    """Return the name of a parameter without that of its method."""
    return name if name == METHOD else name.split(".", 1)[-1]
