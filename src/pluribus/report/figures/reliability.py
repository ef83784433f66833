"""Reliability: whether what is said with some confidence is right that often.

For classes, the accuracy of the answers in each bin of confidence. For numbers, the share of targets within
the central interval of each level: the same question, asked of intervals.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch

from pluribus.comparison.outcomes import Array
from pluribus.metrics.calibration import binned, equal_width
from pluribus.report.figures.drawing import Panel, Selector, diagonal, figure, look, rounded
from pluribus.report.figures.pooling import pooled
from pluribus.report.groups import Group

# As many as the metric `ece` has.
BINS = 15
LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 20))
ALL = "all"
# Bins of at most so many samples are not drawn: chance moves them far.
FEW = 5


@dataclass(frozen=True)
class Curve:
    """One configuration, its seeds taken together.

    Args:
        position: Among all configurations.
        label: Its name.
        said: Mean confidence, or level, ascending.
        seen: Share of right answers, or of targets inside.
        counts: Samples in each bin; for levels, all of them.
    """

    position: int
    label: str
    said: tuple[float, ...]
    seen: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class ReliabilityDiagram:
    """The curves of the configurations that have outcomes; of intervals where numbers are predicted."""

    curves: tuple[Curve, ...]
    of_intervals: bool


def read_reliability(group: Group) -> ReliabilityDiagram:
    """Read the curves from outcomes; no curves where there are none."""
    of_classes, of_intervals = [], []
    for position, entry in enumerate(group.entries):
        if classes := pooled(entry, ("confidence", "label", "target")):
            of_classes.append(_of_classes(position, entry.label, *classes))
        elif places := pooled(entry, ("position",)):
            of_intervals.append(_of_intervals(position, entry.label, *places))
    return ReliabilityDiagram(tuple(of_classes or of_intervals), not of_classes)


def draw_reliability(info: ReliabilityDiagram, label: str = ALL) -> go.Figure:
    """Draw all curves, or one with the number of samples beneath."""
    said, seen = (
        ("Level of the interval", "Share of targets inside")
        if info.of_intervals
        else ("Confidence", "Accuracy")
    )
    curves = [_without_few(curve) for curve in info.curves if label in (ALL, curve.label)]
    traces = [diagonal("perfect")]
    for curve in curves:
        share = [f"{count} samples" for count in curve.counts]
        x, y = rounded(curve.said), rounded(curve.seen)
        style = look(curve.position)
        style["marker"] |= {"size": 7 if info.of_intervals else _sizes(curve.counts)}
        hover = "%{x:.3f} said, %{y:.3f} seen, %{text}<extra>%{fullData.name}</extra>"
        traces.append(
            go.Scatter(
                x=x, y=y, text=share, name=curve.label, mode="lines+markers", hovertemplate=hover, **style
            )
        )
    axes: dict[str, dict[str, Any]] = {"xaxis": {"range": [0, 1.02]}, "yaxis": {"range": [0, 1.02]}}
    if label == ALL or info.of_intervals:
        return figure(traces, said, seen, axes=axes)
    (curve,) = curves
    bars = go.Bar(
        x=rounded(curve.said),
        y=list(curve.counts),
        yaxis="y2",
        name="samples",
        marker={"color": look(curve.position)["marker"]["color"], "opacity": 0.3},
        width=0.8 / BINS,
    )
    axes["yaxis"]["domain"] = [0.28, 1.0]
    axes["yaxis2"] = {"domain": [0, 0.2], "title": {"text": "Samples"}}
    return figure([*traces, bars], said, seen, axes=axes)


def reliability_panel(group: Group) -> Panel | None:
    """Return all configurations together, and each by itself; None without outcomes."""
    info = read_reliability(group)
    if not info.curves:
        return None
    options = (ALL, *(curve.label for curve in info.curves))
    told = "Of the answers given with some confidence, that share should be right."
    marks = f"Larger marks stand for more samples, bins of at most {FEW} are left out; seeds"
    if info.of_intervals:
        told, marks = "Of the central intervals of a level, that share of targets should lie inside.", "Seeds"
    return Panel(
        "reliability",
        "Can its confidence be trusted?",
        f"{told} Below the diagonal it is too sure, above it too careful. {marks} are taken together.",
        {(option,): draw_reliability(info, option) for option in options},
        (Selector("configuration", options),),
    )


def _without_few(curve: Curve) -> Curve:
    """Leave out bins of few samples, which mean nothing and catch the eye; keep all where all are small."""
    kept = [place for place, count in enumerate(curve.counts) if count > FEW] or range(len(curve.counts))
    said, seen = (tuple(values[place] for place in kept) for values in (curve.said, curve.seen))
    return replace(curve, said=said, seen=seen, counts=tuple(curve.counts[place] for place in kept))


def _sizes(counts: tuple[int, ...]) -> list[int]:
    """Return sizes of markers whose area grows with the number of samples, so that few do not mislead."""
    return [round(4 + 8 * math.sqrt(count / max(counts))) for count in counts]


def _of_classes(position: int, label: str, confidence: Array, given: Array, target: Array) -> Curve:
    """Return the accuracy in each bin of confidence."""
    values, right = torch.from_numpy(confidence), torch.from_numpy(given == target)
    found = binned(values, right, equal_width(values, BINS))
    kept = found.counts > 0
    said, seen = found.confidence[kept].tolist(), found.accuracy[kept].tolist()
    return Curve(position, label, tuple(said), tuple(seen), tuple(found.counts[kept].tolist()))


def _of_intervals(position: int, label: str, places: Array) -> Curve:
    """Return the share of targets inside of the central intervals of every level."""
    # A target at the probability p lies within the central interval of the level |2p - 1|.
    needed = np.abs(2 * places - 1)
    seen = tuple(float((needed <= level).mean()) for level in LEVELS)
    return Curve(position, label, LEVELS, seen, (len(needed),) * len(LEVELS))
