"""Severity: how a metric falls as test data are corrupted more and more."""

import math
from dataclasses import dataclass

import plotly.graph_objects as go

from pluribus.comparison.record import Record
from pluribus.metrics import METRICS
from pluribus.report.figures.drawing import Figures, Panel, Selector, bars, figure, look, rounded
from pluribus.report.groups import Group
from pluribus.report.tables import Cell, summarise

ALL = "all kinds"


@dataclass(frozen=True)
class Decline:
    """One configuration: its position, its name, and a metric at each severity, 0 being clean data."""

    position: int
    label: str
    severities: tuple[int, ...]
    cells: tuple[Cell, ...]


def read_declines(group: Group, metric: str, kind: str = ALL) -> tuple[Decline, ...]:
    """Of the configurations that were measured on this kind of corruption."""
    found = []
    for position, entry in enumerate(group.entries):
        severities = sorted({severity for run in entry.runs for severity in _levels(run, kind)})
        cells = [summarise([_value(run, metric, kind, s) for run in entry.runs]) for s in (0, *severities)]
        if severities and not all(math.isnan(cell.mean) for cell in cells[1:]):
            found.append(Decline(position, entry.label, (0, *severities), tuple(cells)))
    return tuple(found)


def draw_declines(declines: tuple[Decline, ...], metric: str) -> go.Figure:
    """A line for each configuration, with standard errors."""
    row = METRICS[metric]
    traces = [
        go.Scatter(
            x=list(one.severities),
            y=rounded([cell.mean for cell in one.cells]),
            error_y=bars([cell.error for cell in one.cells]),
            mode="lines+markers",
            name=one.label,
            hovertemplate="%{y:.3f} at severity %{x}<extra>%{fullData.name}</extra>",
            **look(one.position),
        )
        for one in declines
    ]
    arrow = "lower is better" if row.direction == "lower" else "higher is better"
    return figure(traces, "Severity", f"{row.title} ({arrow})", axes={"xaxis": {"dtick": 1}})


def severity_panel(group: Group) -> Panel | None:
    """By metric and kind of corruption; None where nothing was measured on shifted data."""
    sections = [section for run in group.records for section in run.shifted.values()]
    metrics = tuple(name for name in METRICS if any(name in section for section in sections))
    kinds = dict.fromkeys(name.rpartition("/")[0] for run in group.records for name in run.shifted)
    shown: Figures = {
        (METRICS[metric].title, kind.replace("_", " ")): draw_declines(found, metric)
        for metric in metrics
        for kind in (ALL, *kinds)
        if (found := read_declines(group, metric, kind))
    }
    if not shown:
        return None
    titles, names = (tuple(dict.fromkeys(key[i] for key in shown)) for i in range(2))
    return Panel(
        "severity",
        "What happens when the data change?",
        "A metric on corrupted test data by severity, from clean (0) to worst, with standard errors over "
        "seeds; over all kinds of corruption, or for one.",
        shown,
        (Selector("metric", titles), Selector("corruption", names)),
    )


def _levels(run: Record, kind: str) -> set[int]:
    parts = (name.rpartition("/") for name in run.shifted)
    return {int(severity) for name, _, severity in parts if kind in (ALL, name)}


def _value(run: Record, metric: str, kind: str, severity: int) -> float:
    if severity == 0:
        return run.metrics.get(metric, math.nan)
    sections = [
        section
        for name, section in run.shifted.items()
        if name.rpartition("/")[2] == str(severity) and kind in (ALL, name.rpartition("/")[0])
    ]
    return summarise([section.get(metric, math.nan) for section in sections]).mean
