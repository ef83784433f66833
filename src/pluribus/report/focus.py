"""Focus: figures of many configurations show the recommended one and the single network; others by choice."""

from collections.abc import Sequence
from dataclasses import replace

import plotly.graph_objects as go

from pluribus.report.figures.drawing import Panel
from pluribus.report.recommendation import Recommendation

MOST_SHOWN = 3
"""With at most so many configurations all are shown."""
# In this figure the configurations are points to compare, and hide nothing.
WHOLE = ("pareto",)
HINT = "Choose names below the figure to show or hide others."


def focused(panels: Sequence[Panel], found: Recommendation) -> list[Panel]:
    """Return figures that show the recommended configuration and the single network at first."""
    labels = {entry.label for entry in found.group.entries}
    kept = {entry.label for entry in (found.choice, found.group.single) if entry is not None}
    if len(labels) <= MOST_SHOWN or not kept:
        return list(panels)
    hidden = labels - kept
    return [panel if panel.name in WHOLE else _with_hidden(panel, hidden) for panel in panels]


def _with_hidden(panel: Panel, hidden: set[str]) -> Panel:
    """Return a panel whose traces of some names are shown by choice alone; unchanged where there are none."""
    figures, changed = {}, False
    for options, drawn in panel.figures.items():
        named = [trace.name in hidden for trace in drawn.data]
        # A figure of one configuration, chosen by the reader, shows it.
        if not any(named) or not set(options).isdisjoint(hidden):
            figures[options] = drawn
            continue
        changed = True
        shown = go.Figure(drawn)
        for trace, is_hidden in zip(shown.data, named, strict=True):
            if is_hidden:
                trace.visible = "legendonly"
        figures[options] = shown
    if not changed:
        return panel
    return replace(panel, figures=figures, caption=f"{panel.caption} {HINT}")
