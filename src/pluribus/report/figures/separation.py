"""Separation: whether data of another kind look stranger to an ensemble than test data do."""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from pluribus.metrics.ood import CRITERIA
from pluribus.report.figures.drawing import FINE, INSIDE, OUTSIDE, Panel, Selector, figure, rounded
from pluribus.report.groups import Entry, Group
from pluribus.report.tables import Cell, summarise

BINS = 40
SPAN = (0.2, 99.8)
"""Percentiles between which scores are drawn; the few beyond are put into the outermost bins."""


@dataclass(frozen=True)
class Separation:
    """Scores of one configuration by one criterion, seeds taken together.

    Args:
        centres: Of bins, ascending.
        inside: Share of test samples in each bin.
        outside: Share of samples out of distribution in each bin.
        auroc: How often the latter look stranger, over seeds.
    """

    centres: tuple[float, ...]
    inside: tuple[float, ...]
    outside: tuple[float, ...]
    auroc: Cell


def read_separation(entry: Entry, kind: str, criterion: str) -> Separation | None:
    """Of one set out of distribution; None where a run lacks the scores, or none is finite."""
    found = [run.outcomes for run in entry.runs]
    if any(one is None or criterion not in one.ood.get(kind, {}) for one in found):
        return None
    inside, outside = (
        values[np.isfinite(values)]
        for values in (
            np.concatenate([one.scores[criterion] for one in found if one]),
            np.concatenate([one.ood[kind][criterion] for one in found if one]),
        )
    )
    if not len(inside) or not len(outside):
        return None
    low, high = np.percentile(np.concatenate((inside, outside)), SPAN)
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    shares = [
        np.histogram(np.clip(values, *edges[[0, -1]]), edges)[0] / len(values) for values in (inside, outside)
    ]
    auroc = summarise([run.ood.get(kind, {}).get(f"auroc_{criterion}", np.nan) for run in entry.runs])
    centres = (edges[:-1] + edges[1:]) / 2
    return Separation(tuple(centres), tuple(shares[0]), tuple(shares[1]), auroc)


def draw_separation(info: Separation, kind: str, criterion: str) -> go.Figure:
    """Two histograms, one over the other."""
    traces = [
        go.Bar(
            x=rounded(info.centres, FINE),
            y=rounded(shares),
            name=name,
            marker={"color": colour, "opacity": 0.6},
            hovertemplate=f"%{{y:.1%}} of {name}<extra></extra>",
        )
        for name, shares, colour in (("test data", info.inside, INSIDE), (kind, info.outside, OUTSIDE))
    ]
    words = criterion.replace("_", " ")
    return figure(
        traces,
        f"Strangeness: {words}",
        "Share of samples",
        barmode="overlay",
        bargap=0,
        title={"text": f"AUROC {info.auroc.show(3)}"},
        axes={"yaxis": {"tickformat": ".0%"}},
    )


def separation_panel(group: Group) -> Panel | None:
    """By configuration, set and criterion; None without outcomes of data out of distribution."""
    kinds = dict.fromkeys(kind for run in group.records for kind in run.ood)
    shown: dict[tuple[str, ...], go.Figure] = {}
    for entry in group.entries:
        for kind in kinds:
            for criterion in CRITERIA:
                info = read_separation(entry, kind, criterion)
                if info is not None:
                    words = criterion.replace("_", " ")
                    shown[entry.label, kind, words] = draw_separation(info, kind, criterion)
    if not shown:
        return None
    labels, sets, criteria = (tuple(dict.fromkeys(key[i] for key in shown)) for i in range(3))
    preferred = sorted(criteria, key=lambda name: name not in ("entropy", "variance"))
    return Panel(
        "separation",
        "Does it notice what it was not made for?",
        "How strange test data and data of another kind look to it. The less both overlap, the better; the "
        "AUROC is 1 where they do not, 0.5 where they cannot be told apart.",
        shown,
        (
            Selector("configuration", labels),
            Selector("data", sets),
            Selector("criterion", tuple(preferred)),
        ),
    )
