"""Selective prediction: how wrong the answers are if the unsure ones are handed to somebody else."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch

from pluribus.metrics.selective import selective_risk
from pluribus.report.figures.drawing import Panel, figure, look, robust_span, rounded
from pluribus.report.groups import Entry, Group

COVERAGES = tuple(round(0.05 * step, 2) for step in range(1, 21))
# Up to 100 %, where the curves end, with room for its label.
TICKS = {"range": [0, 1.02], "tick0": 0, "dtick": 0.2, "tickformat": ".0%"}


@dataclass(frozen=True)
class Selection:
    """One configuration: its error at every coverage, averaged over seeds; an error rate, or an RMSE."""

    position: int
    label: str
    errors: tuple[float, ...]
    of_numbers: bool


def read_selection(position: int, entry: Entry) -> Selection | None:
    """Read a configuration from its outcomes; None where a run has none."""
    columns = [run.outcomes.columns if run.outcomes else {} for run in entry.runs]
    if all("confidence" in one for one in columns):
        pairs = [(one["confidence"], one["label"] != one["target"]) for one in columns]
    # A method that predicts no spread has nothing to abstain by.
    elif all("squared_error" in one and one["std"].any() for one in columns):
        pairs = [(-one["std"], one["squared_error"]) for one in columns]
    else:
        return None
    of_numbers = "confidence" not in columns[0]
    risks = []
    for confidence, losses in pairs:
        found = selective_risk(torch.from_numpy(confidence), torch.from_numpy(losses))
        risk = np.interp(COVERAGES, found.coverage.numpy(), found.risk.numpy())
        risks.append(np.sqrt(risk) if of_numbers else risk)
    return Selection(position, entry.label, tuple(np.mean(risks, 0).tolist()), of_numbers)


def draw_selections(selections: tuple[Selection, ...]) -> go.Figure:
    """Draw a line for each configuration."""
    traces = [
        go.Scatter(
            x=list(COVERAGES),
            y=rounded(one.errors),
            mode="lines",
            name=one.label,
            line=look(one.position)["line"],
            hovertemplate="%{y:.4f} on the surest %{x:.0%}<extra>%{fullData.name}</extra>",
        )
        for one in selections
    ]
    error = "RMSE of these" if selections[0].of_numbers else "Error rate of these"
    axes: dict[str, dict[str, Any]] = {"xaxis": TICKS, "yaxis": {"rangemode": "tozero"}}
    if not selections[0].of_numbers:
        axes["yaxis"]["tickformat"] = ".1%"
    span = robust_span([one.errors for one in selections])
    if span is not None:
        axes["yaxis"]["range"] = rounded([0.0, span[1]])
    return figure(traces, "Share of samples answered, the surest first", error, axes=axes)


def selective_panel(group: Group) -> Panel | None:
    """Return all configurations in one figure; None without outcomes."""
    found = (read_selection(position, entry) for position, entry in enumerate(group.entries))
    selections = tuple(one for one in found if one is not None)
    if not selections:
        return None
    return Panel(
        "selective",
        "What if it may abstain?",
        "The error on the samples it is surest of (risk against coverage): at 80 % the least sure fifth is "
        "handed to a person. The lower the curve, the better its uncertainty finds its own mistakes.",
        {(): draw_selections(selections)},
    )
