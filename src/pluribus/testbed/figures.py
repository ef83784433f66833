"""Figures of the testbed: Figs. 2, 4 and 5 of the Layer Ensembles paper, over all cells or one."""

import math
from collections.abc import Iterable, Sequence

import plotly.graph_objects as go

from pluribus.report.figures.drawing import Panel, Selector
from pluribus.testbed.cells import Cell
from pluribus.testbed.curves import DEEP, ranked_lines, subset_lines
from pluribus.testbed.drawing import draw_methods, draw_ranked, draw_subsets
from pluribus.testbed.results import Result
from pluribus.testbed.summary import common, rows_of, summarise

EVERY = "all"
"""The option that averages over all cells."""


def make_panels(results: Sequence[Result], direction: str) -> list[Panel]:
    """Return all figures that the results have, each for all cells and for each of them."""
    shared = common(results)
    cells = list(dict.fromkeys(result.cell for result in shared))
    cells.sort(key=lambda cell: (cell.inputs, cell.ratio, cell.noise))
    drawn: dict[str, dict[tuple[str, ...], go.Figure]] = {"methods": {}, "subsets": {}, "ranked": {}}
    for option, some in _choices(shared, cells):
        rows = [(row.label, summarise(some, row, direction), row.is_reference) for row in rows_of(some)]
        known = [row for row in rows if not math.isnan(row[1].mean)]
        drawn["methods"][option,] = draw_methods(known)
        lines = subset_lines(some, direction)
        if len(lines) > 1:
            drawn["subsets"][option,] = draw_subsets(lines)
        ranked = ranked_lines(some, direction)
        if ranked:
            deep = [number for label, number, _ in rows if label == DEEP]
            drawn["ranked"][option,] = draw_ranked(ranked, deep[0] if deep else None)
    return [_panel(name, figures) for name, figures in drawn.items() if figures]


def _choices(results: Sequence[Result], cells: Iterable[Cell]) -> list[tuple[str, list[Result]]]:
    """Return what a reader can choose: all cells, or one."""
    found = [(EVERY, list(results))]
    for cell in cells:
        found.append((str(cell), [result for result in results if result.cell == cell]))
    return found


TEXTS = {
    "methods": (
        "Whose uncertainty is right?",
        "Divergence from the exact posterior, with standard errors (Fig. 5). The grey samplers calibrate the "
        "score itself: functions drawn from the exact posterior score near 0, those with half its width, or "
        "that know nothing of the data (the prior), do not.",
    ),
    "subsets": (
        "How many members does it take?",
        "K networks beside random members of Layer Ensembles with K options for each layer (Fig. 2). "
        "With K options a layer ensemble stores as much as K networks, and has K³ members.",
    ),
    "ranked": (
        "Do the best members do better than all?",
        "Members ranked by greedy selection on validation points, scored on test points (Fig. 4). "
        "A star marks the lowest mean of a curve.",
    ),
}


def _panel(name: str, figures: dict[tuple[str, ...], go.Figure]) -> Panel:
    title, caption = TEXTS[name]
    return Panel(name, title, caption, figures, (Selector("problems", tuple(key[0] for key in figures)),))
