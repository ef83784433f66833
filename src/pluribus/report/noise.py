"""Noise: whether two configurations differ, or whether chance may have made the difference.

Owen, "The pigeonhole bootstrap", Annals of Applied Statistics 1, 2007. Test samples and seeds are drawn again
with replacement, the same ones for both configurations:

    Δ* = 1/S Σ_s c_s (q(A_s; n) - q(B_s; n)),    q(A; n) = f(1/N Σ_i n_i a_i)     (1)

    symbol   here
    n_i      how often sample i was drawn: sample_counts()
    c_s      how often seed s was drawn
    a_i, f   a metric as a function of means over samples: Form

The interval holds 95 % of the Δ*; if 0 lies in it, the difference is within noise. One seed leaves the noise
between seeds unknown, and of a few the interval is too narrow: it says at least how large the noise is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pluribus.comparison.outcomes import Array
from pluribus.metrics.bootstrap import DRAWS, LEVEL, sample_counts
from pluribus.report.groups import Entry

Columns = dict[str, Array]

# As many as the metric `ece` has.
BINS = 15


@dataclass(frozen=True)
class Form:
    """A metric as a function of means over samples.

    Args:
        needs: Columns of the outcomes.
        parts: Returns what is averaged, `[samples, parts]`.
        finish: Computes the metric from means, `[..., parts]` to `[...]`.
    """

    needs: tuple[str, ...]
    parts: Callable[[Columns], Array]
    finish: Callable[[Array], Array]


def _mean_of(column: str) -> Form:
    """Return the form of a metric that is the mean of a column."""
    return Form((column,), lambda c: c[column][:, None], lambda means: means[..., 0])


def _calibration_gaps(columns: Columns) -> Array:
    """Return each sample's accuracy less its confidence, in the column of its bin."""
    edges = np.arange(1, BINS, dtype=np.float32) / np.float32(BINS)
    bins = np.digitize(columns["confidence"], edges, right=True)
    found = np.zeros((len(bins), BINS))
    right = columns["label"] == columns["target"]
    found[np.arange(len(bins)), bins] = right - columns["confidence"].astype(np.float64)
    return found


FORMS = {
    "accuracy": Form(
        ("label", "target"), lambda c: (c["label"] == c["target"])[:, None], lambda means: means[..., 0]
    ),
    "nll": _mean_of("nll"),
    "brier": _mean_of("brier"),
    "expected_cost": _mean_of("cost"),
    "ece": Form(("confidence", "label", "target"), _calibration_gaps, lambda means: np.abs(means).sum(-1)),
    "rmse": Form(
        ("squared_error",), lambda c: c["squared_error"][:, None], lambda means: np.sqrt(means[..., 0])
    ),
    "mae": _mean_of("absolute_error"),
    "gaussian_nll": _mean_of("gaussian_nll"),
    "crps": _mean_of("crps"),
}
"""Metrics whose noise is known, by name."""


@dataclass(frozen=True)
class Difference:
    """How much higher a metric of one configuration is than that of another.

    Args:
        value: Mean over the seeds that both have.
        low: Lower end of the interval.
        high: Upper end.
        seeds: How many seeds both have.
        samples: How many test samples.
    """

    value: float
    low: float
    high: float
    seeds: int
    samples: int

    @property
    def within_noise(self) -> bool:
        """Return whether the interval holds 0."""
        return self.low <= 0 <= self.high


def difference(one: Entry, other: Entry, metric: str, draws: int = DRAWS) -> Difference | None:
    """Compute Eq. (1) with its interval; None without outcomes on the same samples and seeds."""
    form, pairs = FORMS.get(metric), _pairs(one, other)
    if form is None or not pairs or not _have(pairs, form.needs):
        return None
    parts = np.array([[form.parts(columns) for columns in pair] for pair in pairs], dtype=np.float64)
    if not np.isfinite(parts).all():
        return None
    seeds, _, samples, _ = parts.shape
    plain = form.finish(parts.mean(2))  # [seeds, 2]
    counts = sample_counts(samples, draws)
    drawn = form.finish(np.einsum("dn,spnk->dspk", counts, parts, optimize=True) / samples)
    # A generator of its own: the draws of seeds do not follow from those of samples.
    chosen = np.random.default_rng(1).multinomial(seeds, [1 / seeds] * seeds, size=draws)
    found = ((drawn[..., 0] - drawn[..., 1]) * chosen).sum(1) / seeds
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Difference(float((plain[:, 0] - plain[:, 1]).mean()), float(low), float(high), seeds, samples)


def _have(pairs: Sequence[tuple[Columns, Columns]], names: Sequence[str]) -> bool:
    """Return whether all outcomes have some columns."""
    wanted = set(names)
    return all(one.keys() >= wanted and other.keys() >= wanted for one, other in pairs)


def _pairs(one: Entry, other: Entry) -> list[tuple[Columns, Columns]]:
    """Return the columns of both for every seed that both have; none if they are of different samples."""
    found = []
    others = {run.seed: run.outcomes for run in other.runs}
    for run in one.runs:
        mate = others.get(run.seed)
        if run.outcomes is not None and mate is not None:
            found.append((run.outcomes.columns, mate.columns))
    targets = [columns["target"] for pair in found for columns in pair]
    return found if all(np.array_equal(targets[0], target) for target in targets) else []
