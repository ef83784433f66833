"""Bootstrap intervals: how far a metric may be from its value on many more test samples.

Efron & Tibshirani, "An introduction to the bootstrap", 1993, Section 13.3, the percentile interval. Test
samples are drawn again with replacement; a draw is stored as how often it holds each sample, so that a metric
of all draws is a few matrix products:

    θ* = θ(n),    n_i how often sample i was drawn,    interval = quantiles of the θ*     (1)

    symbol   here
    n        sample_counts(), [draws, samples]
    θ        Statistic: counts [draws, samples] to values [draws]

Draws depend on the number of samples alone, so that intervals are the same in every run. An interval is about
the test samples. It holds nothing of the noise between trainings.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from torch import Tensor

from pluribus.metrics.discrimination import class_scores, weighted_auprc, weighted_auroc
from pluribus.metrics.regression import joint_nll_per_sample, ranked_distance
from pluribus.metrics.samples import exact, samples
from pluribus.metrics.scoring import nll_per_sample, squared_distance
from pluribus.prediction import ContinuousPrediction, DiscretePrediction, GaussianPrediction, Prediction
from pluribus.ranges import check

Array = np.ndarray[Any, Any]
# Returns a metric of every draw, `[draws]`, from counts `[draws, samples]`.
Statistic = Callable[[Array], Array]
Interval = tuple[float, float]

# Enough to place the ends of a 95 % interval: 25 draws lie beyond each of them.
DRAWS = 1000
LEVEL = 0.95
SEED = 0
# Beyond, intervals are far narrower than the noise between trainings, and take seconds.
MOST_SAMPLES = 50_000
# Numbers of counts that are held at once, 32 MB.
AT_ONCE = 2**23


@lru_cache(maxsize=4)
def sample_counts(samples: int, draws: int) -> Array:
    """Return how often each sample was drawn, `[draws, samples]`; the same for all that is compared."""
    generator = np.random.default_rng(SEED)
    # Small whole numbers, and one row at a time: 50,000 samples are kept in 100 MB.
    counts = np.empty((draws, samples), np.uint16)
    for row in counts:
        row[:] = np.bincount(generator.integers(samples, size=samples), minlength=samples)
    return counts


def in_parts(statistic: Statistic, samples: int, draws: int) -> Array:
    """Return a metric of every draw, computed for some draws at a time."""
    counts = sample_counts(samples, draws)
    step = max(1, AT_ONCE // samples)
    # Floats, because products of whole numbers are slow.
    parts = (counts[start : start + step].astype(np.float32) for start in range(0, draws, step))
    return np.concatenate([statistic(part) for part in parts])


def percentile_interval(
    statistic: Statistic, samples: int, draws: int = DRAWS, level: float = LEVEL
) -> Interval:
    """Compute the interval of Eq. (1); draws in which the metric is undefined do not count.

    Args:
        statistic: The metric of every draw.
        samples: How many samples there are.
        draws: How often they are drawn.
        level: Share of the draws inside, in (0, 1).

    >>> values = np.arange(100.0)
    >>> low, high = percentile_interval(lambda counts: counts @ values / 100, 100)
    >>> f"{low:.1f} < {values.mean()} < {high:.1f}"
    '43.8 < 49.5 < 55.0'
    """
    check("draws", draws, int, at_least=1)
    check("level", level, float, above=0, below=1)
    found = in_parts(statistic, samples, draws)
    found = found[np.isfinite(found)]
    if not len(found):
        return float("nan"), float("nan")
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def bootstrap_intervals(
    prediction: Prediction, target: Tensor, draws: int = DRAWS, level: float = LEVEL
) -> dict[str, Interval]:
    """Return the intervals of the common metrics of a prediction, by name.

    Nothing is returned for dense predictions, whose pixels are no independent samples, and for more than
    50,000 samples.
    """
    if not has_independent_samples(target):
        return {}
    prediction, target = samples(prediction, target)
    statistics: Mapping[str, Statistic] = {}
    if isinstance(prediction, DiscretePrediction):
        statistics = _of_classes(prediction, target)
    elif isinstance(prediction, ContinuousPrediction):
        statistics = _of_numbers(prediction, target)
    found = {}
    for name, statistic in statistics.items():
        found[name] = percentile_interval(statistic, len(target), draws, level)
    return found


def has_independent_samples(target: Tensor) -> bool:
    """Return whether samples can be drawn again: one target each, and at most 50,000 of them.

    Pixels of one image, and several labels or targets of one sample, are no independent samples.
    """
    return target.numel() == len(target) <= MOST_SAMPLES


def mean_of(values: Array) -> Statistic:
    """Return the statistic that is the mean of a number of each sample."""
    return lambda counts: counts @ values / counts.sum(1)


def share_of(hits: Array, counted: Array) -> Statistic:
    """Return the statistic that is the share of the samples counted that are hits; NaN without any."""
    of_hits, of_counted = (hits & counted).astype(np.float64), counted.astype(np.float64)

    def share(counts: Array) -> Array:
        with np.errstate(invalid="ignore"):
            found: Array = (counts @ of_hits) / (counts @ of_counted)
        return found

    return share


def mean_recall(labels: Array, target: Array) -> Statistic:
    """Return the statistic that is the mean over the classes drawn of the share found of each."""
    right = labels == target
    return known_mean([share_of(right, target == one) for one in np.unique(target)])


def known_mean(statistics: Sequence[Statistic]) -> Statistic:
    """Return the mean of several statistics, in each draw of those that are defined in it."""

    def mean(counts: Array) -> Array:
        values = np.stack([statistic(counts) for statistic in statistics])
        known = np.isfinite(values)
        with np.errstate(invalid="ignore"):
            found: Array = np.where(known, values, 0).sum(0) / known.sum(0)
        return found

    return mean


def _of_classes(prediction: DiscretePrediction, target: Tensor) -> dict[str, Statistic]:
    labels, truth = exact(prediction.labels).numpy(), exact(target).numpy()
    found = {
        "accuracy": mean_of((labels == truth).astype(np.float64)),
        "balanced_accuracy": mean_recall(labels, truth),
        "nll": mean_of(exact(nll_per_sample(prediction, target)).numpy()),
        "brier": mean_of(exact(squared_distance(prediction, target)).numpy()),
    }
    areas: dict[str, list[Statistic]] = {"auroc": [], "auprc": []}
    for number, scores in class_scores(prediction).items():
        own = truth == number
        if own.any() and not own.all():
            ranked = exact(scores).numpy(), own
            areas["auroc"].append(partial(weighted_auroc, *ranked))
            areas["auprc"].append(partial(weighted_auprc, *ranked))
    return found | {name: known_mean(parts) for name, parts in areas.items() if parts}


def _of_numbers(prediction: ContinuousPrediction, target: Tensor) -> dict[str, Statistic]:
    errors = exact(prediction.mean - target).flatten().numpy()
    squares = mean_of(errors**2)
    found = {"rmse": lambda counts: np.sqrt(squares(counts)), "mae": mean_of(np.abs(errors))}
    if isinstance(prediction, GaussianPrediction):
        found["gaussian_nll"] = mean_of(exact(joint_nll_per_sample(prediction, target)).flatten().numpy())
        found["crps"] = mean_of(exact(ranked_distance(prediction, target)).flatten().numpy())
    return found
