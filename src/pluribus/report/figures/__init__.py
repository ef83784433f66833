"""Figures: each an information object that is tested, and its drawing.

A new one needs its file with `read_…`, `draw_…` and `…_panel`, a place in `PANELS`, and a test.
"""

from collections.abc import Callable

from pluribus.report.figures.drawing import Panel
from pluribus.report.figures.grid import grid_panel
from pluribus.report.figures.intervals import intervals_panel
from pluribus.report.figures.pareto import pareto_panel
from pluribus.report.figures.preference import preference_panel
from pluribus.report.figures.reliability import reliability_panel
from pluribus.report.figures.selective import selective_panel
from pluribus.report.figures.separation import separation_panel
from pluribus.report.figures.severity import severity_panel
from pluribus.report.groups import Group

# In the order of the page.
PANELS: tuple[Callable[[Group], Panel | None], ...] = (
    pareto_panel,
    reliability_panel,
    selective_panel,
    separation_panel,
    severity_panel,
    intervals_panel,
    grid_panel,
    preference_panel,
)


def make_panels(group: Group) -> list[Panel]:
    """Return the figures that a group has something to show in."""
    if not group.entries:
        return []
    panels = [make(group) for make in PANELS]
    return [panel for panel in panels if panel is not None]
