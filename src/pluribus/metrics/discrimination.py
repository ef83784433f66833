"""Discrimination: whether samples of a class get a higher probability of it than other samples do.

    AUROC = P(p > p') + 1/2 P(p = p'),    p, p' of a sample of the class and of another     (1)
    AUPRC = Σ_t (recall_t - recall_t-1) precision_t                                         (2)
    balanced accuracy = 1/|C| Σ_c recall_c                                                  (3)

    symbol   here
    p        probability of the class, prediction.log_probabilities
    t        thresholds of p, from the highest; equal probabilities share one
    C        the classes among the targets

Hanley & McNeil, "The meaning and use of the area under a receiver operating characteristic (ROC) curve",
Radiology 143, 1982; Davis & Goadrich, "The relationship between precision-recall and ROC curves", ICML 2006;
Brodersen et al., "The balanced accuracy and its posterior distribution", ICPR 2010.

Of two outcomes, outcome 1 is the class to find. Of more, (1) and (2) are the mean over the classes that some
targets have and others have not, each against all others. Labels of a multilabel prediction are pooled.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pluribus.metrics.metric import Metric
from pluribus.metrics.ood import aupr as precision_recall_area
from pluribus.metrics.ood import auroc as roc_area
from pluribus.metrics.samples import exact, samples
from pluribus.prediction import DiscretePrediction

Array = np.ndarray[Any, Any]


def class_scores(prediction: DiscretePrediction) -> dict[int, Tensor]:
    """Return the log-probabilities by class, `[samples]` each, that are ranked: of two outcomes one alone."""
    logs = prediction.log_probabilities
    classes = (1,) if logs.shape[1] == 2 else range(logs.shape[1])
    return {number: logs[:, number] for number in classes}


def class_auroc(prediction: DiscretePrediction, target: Tensor) -> float:
    """Compute Eq. (1), in [0, 1]; 1/2 by chance, NaN where all targets are of one class."""
    return _mean_over_classes(prediction, target, roc_area)


def class_auprc(prediction: DiscretePrediction, target: Tensor) -> float:
    """Compute Eq. (2), in [0, 1]; the share of the class by chance, NaN if all targets are of one class."""
    return _mean_over_classes(prediction, target, precision_recall_area)


def balanced_accuracy(prediction: DiscretePrediction, target: Tensor) -> float:
    """Compute Eq. (3) of the most probable outcomes, in [0, 1]."""
    prediction, target = samples(prediction, target)
    outcomes = prediction.log_probabilities.shape[1]
    found, wanted = (
        exact(torch.bincount(values, minlength=outcomes))
        for values in (target[prediction.labels == target], target)
    )
    present = wanted > 0
    return (found[present] / wanted[present]).mean().item()


def _mean_over_classes(
    prediction: DiscretePrediction, target: Tensor, measure: Callable[[Tensor, Tensor], float]
) -> float:
    """Average a measure of two sets of scores over the classes, each against all others."""
    prediction, target = samples(prediction, target)
    values = []
    for number, scores in class_scores(prediction).items():
        own = target == number
        # A class that all targets have, or none, has nothing to be told from.
        if own.any() and not own.all():
            values.append(measure(scores[~own], scores[own]))
    return float(np.mean(values)) if values else float("nan")


def weighted_auroc(scores: Array, positive: Array, counts: Array) -> Array:
    """Compute Eq. (1) of samples that count several times or not at all.

    Args:
        scores: `[samples]`.
        positive: Which samples are of the class, `[samples]`.
        counts: How often each sample counts, `[draws, samples]`.

    Returns:
        `[draws]`; NaN where all samples that count are of one kind.
    """
    found, mistaken = _by_threshold(scores, positive, counts)
    negatives = mistaken.sum(1)
    # Thresholds descend, so that what comes later has a lower score; a pair of equal scores counts half.
    lower = negatives[:, None] - mistaken.cumsum(1) + mistaken / 2
    with np.errstate(invalid="ignore"):
        area: Array = (found * lower).sum(1) / (found.sum(1) * negatives)
    return area


def weighted_auprc(scores: Array, positive: Array, counts: Array) -> Array:
    """Compute Eq. (2) of samples that count several times or not at all; arguments as `weighted_auroc`."""
    found, mistaken = _by_threshold(scores, positive, counts)
    hits, alarms = found.cumsum(1), mistaken.cumsum(1)
    with np.errstate(invalid="ignore"):
        # Before the first sample that counts there is no precision, and no recall is gained.
        precision = np.where(hits > 0, hits / (hits + alarms), 0.0)
        area: Array = (found * precision).sum(1) / found.sum(1)
    # Without negatives the area is 1 whatever the scores are.
    return np.where(mistaken.sum(1) > 0, area, np.nan)


def _by_threshold(scores: Array, positive: Array, counts: Array) -> tuple[Array, Array]:
    """Return the counts of positives and of negatives at each score, the highest first, `[draws, scores]`."""
    order = np.argsort(-scores, kind="stable")
    descending, kind = scores[order], positive[order]
    starts = np.flatnonzero(np.r_[True, descending[1:] != descending[:-1]])
    drawn = counts[:, order].astype(np.float64)
    found = np.add.reduceat(drawn * kind, starts, axis=1)
    mistaken = np.add.reduceat(drawn * ~kind, starts, axis=1)
    return found, mistaken


_row = partial(Metric, direction="higher", range=(0, 1), kinds=(DiscretePrediction,))

ROWS = (
    _row(
        name="balanced_accuracy",
        function=balanced_accuracy,
        title="Balanced accuracy",
        explanation="Share of samples labelled right, averaged so that rare classes count like others.",
        paper="Brodersen et al., The balanced accuracy and its posterior distribution, ICPR 2010",
    ),
    _row(
        name="auroc",
        function=class_auroc,
        title="AUROC",
        explanation="How often a sample of a class gets a higher probability of it than another sample.",
        paper="Hanley & McNeil, The meaning and use of the area under a ROC curve, Radiology 1982",
    ),
    _row(
        name="auprc",
        function=class_auprc,
        title="AUPRC",
        explanation="Share of samples of a class among those taken for it, averaged over how many are found.",
        paper="Davis & Goadrich, The relationship between precision-recall and ROC curves, ICML 2006",
    ),
)
