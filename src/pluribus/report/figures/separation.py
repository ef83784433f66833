"""Separation: whether data of another kind look stranger to an ensemble than test data do."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from pluribus.comparison.outcomes import CHOSEN, Array
from pluribus.metrics.ood import CRITERIA
from pluribus.report.columns import Cell, summarise
from pluribus.report.figures.drawing import FINE, INSIDE, OUTSIDE, Panel, Selector, figure, rounded
from pluribus.report.groups import Entry, Group

BINS = 40
# Percentiles between which scores are drawn: a few far out would squeeze all others into one bin. They are
# put into the outermost bins.
SPAN = (0.2, 99.8)
# Criteria that are shown first where no calibration chose one.
PREFERRED = ("entropy", "variance")


@dataclass(frozen=True)
class Separation:
    """Scores of one configuration by one criterion, seeds taken together.

    Args:
        centres: Centres of bins, ascending.
        inside: Share of test samples in each bin.
        outside: Share of samples out of distribution in each bin.
        auroc: How often the latter look stranger, over seeds.
    """

    centres: tuple[float, ...]
    inside: tuple[float, ...]
    outside: tuple[float, ...]
    auroc: Cell


def read_separation(entry: Entry, kind: str, criterion: str) -> Separation | None:
    """Read the scores on one set out of distribution; None where a run lacks them, or none is finite."""
    inside, outside = _scores(entry, kind, criterion)
    if not len(inside) or not len(outside):
        return None
    low, high = np.percentile(np.concatenate((inside, outside)), SPAN)
    # Scores that are all equal still need bins of some width.
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    auroc = summarise(run.ood.get(kind, {}).get(f"auroc_{criterion}", np.nan) for run in entry.runs)
    centres = (edges[:-1] + edges[1:]) / 2
    return Separation(tuple(centres), _shares(inside, edges), _shares(outside, edges), auroc)


def _scores(entry: Entry, kind: str, criterion: str) -> tuple[Array, Array]:
    """Return the finite scores of all seeds, in and out of distribution; none where a run lacks them."""
    inside: list[Array] = []
    outside: list[Array] = []
    for run in entry.runs:
        if run.outcomes is None or criterion not in run.outcomes.ood.get(kind, {}):
            return np.empty(0), np.empty(0)
        inside.append(run.outcomes.scores[criterion])
        outside.append(run.outcomes.ood[kind][criterion])
    joined = np.concatenate(inside), np.concatenate(outside)
    return joined[0][np.isfinite(joined[0])], joined[1][np.isfinite(joined[1])]


def _shares(values: Array, edges: Array) -> tuple[float, ...]:
    """Return the share of values in each bin; values beyond the outermost bins count in these."""
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    return tuple(counts / len(values))


def draw_separation(info: Separation, kind: str, criterion: str) -> go.Figure:
    """Draw two histograms, one over the other."""
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
    return figure(
        traces,
        f"Strangeness: {_words(criterion)}",
        "Share of samples",
        barmode="overlay",
        bargap=0,
        title={"text": f"AUROC {info.auroc.show(3)}"},
        axes={"yaxis": {"tickformat": ".0%"}},
    )


def _words(criterion: str) -> str:
    """Return the name of a criterion for readers."""
    return "chosen on validation data" if criterion == CHOSEN else criterion.replace("_", " ")


def separation_panel(group: Group) -> Panel | None:
    """Return figures by configuration, set and criterion; None without outcomes out of distribution."""
    kinds = dict.fromkeys(kind for run in group.records for kind in run.ood)
    shown: dict[tuple[str, ...], go.Figure] = {}
    for entry in group.entries:
        for kind in kinds:
            for criterion in (CHOSEN, *CRITERIA):
                info = read_separation(entry, kind, criterion)
                if info is not None:
                    shown[entry.label, kind, _words(criterion)] = draw_separation(info, kind, criterion)
    if not shown:
        return None
    labels, sets, criteria = (tuple(dict.fromkeys(key[i] for key in shown)) for i in range(3))
    chosen = Counter(run.ood_score.replace("_", " ") for run in group.records if run.ood_score)
    # The score that most calibrations chose on validation data comes first: it is the one of the tables.
    # It is stored itself by runs since it may be a distance, which no criterion of the outputs is.
    first = _words(CHOSEN)
    preferred = sorted(criteria, key=lambda name: (name != first, -chosen[name], name not in PREFERRED))
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
