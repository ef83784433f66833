"""Severity: how a metric falls as test data are corrupted more and more."""

import math
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from pluribus.comparison.record import Record
from pluribus.metrics import METRICS
from pluribus.report.columns import Cell, summarise
from pluribus.report.figures.drawing import Panel, Selector, bars, figure, look, robust_span, rounded
from pluribus.report.groups import Group

# The option that averages over all kinds of corruption.
ALL = "all kinds"


@dataclass(frozen=True)
class Decline:
    """One configuration: its position, its name, and a metric at each severity, 0 being clean data."""

    position: int
    label: str
    severities: tuple[int, ...]
    cells: tuple[Cell, ...]


def read_declines(group: Group, metric: str, kind: str = ALL) -> tuple[Decline, ...]:
    """Read the configurations that were measured on this kind of corruption."""
    found = []
    for position, entry in enumerate(group.entries):
        severities = sorted(set().union(*(_levels(run, kind) for run in entry.runs)))
        cells = []
        for severity in (0, *severities):
            cells.append(summarise(_value(run, metric, kind, severity) for run in entry.runs))
        if severities and not all(math.isnan(cell.mean) for cell in cells[1:]):
            found.append(Decline(position, entry.label, (0, *severities), tuple(cells)))
    return tuple(found)


def draw_declines(declines: tuple[Decline, ...], metric: str) -> go.Figure:
    """Draw a line for each configuration, with standard errors."""
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
    axes: dict[str, dict[str, Any]] = {"xaxis": {"dtick": 1}, "yaxis": {}}
    span = robust_span([[cell.mean for cell in one.cells] for one in declines])
    if span is not None:
        axes["yaxis"]["range"] = rounded(span)
    return figure(traces, "Severity", f"{row.title} ({arrow})", axes=axes)


def severity_panel(group: Group) -> Panel | None:
    """Return figures by metric and kind of corruption; None where nothing was measured on shifted data."""
    measured: set[str] = set()
    kinds: dict[str, None] = {}
    for run in group.records:
        for name, section in run.shifted.items():
            measured |= section.keys()
            kinds[name.rpartition("/")[0]] = None
    shown: dict[tuple[str, ...], go.Figure] = {}
    # In the order of all metrics, whatever the order of a record.
    for metric in [name for name in METRICS if name in measured]:
        for kind in (ALL, *kinds):
            declines = read_declines(group, metric, kind)
            if declines:
                shown[METRICS[metric].title, kind.replace("_", " ")] = draw_declines(declines, metric)
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
    """Return the severities at which a run was measured."""
    levels = set()
    for section in run.shifted:
        name, _, severity = section.rpartition("/")
        if kind in (ALL, name):
            levels.add(int(severity))
    return levels


def _value(run: Record, metric: str, kind: str, severity: int) -> float:
    """Return a metric of a run at a severity, averaged over kinds of corruption."""
    # Clean data.
    if severity == 0:
        return run.metrics.get(metric, math.nan)
    values = []
    for section, metrics in run.shifted.items():
        name, _, level = section.rpartition("/")
        if level == str(severity) and kind in (ALL, name):
            values.append(metrics.get(metric, math.nan))
    return summarise(values).mean
