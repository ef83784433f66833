"""Choose the out-of-distribution score that tells altered validation samples best from the others.

No score is best everywhere. Distances of outputs find strangers best where classes form tight groups, entropy
where they do not. The AUROC of each score, averaged over the kinds of alteration, decides.

A distance is fitted to samples, and would look too good on the same ones. It is therefore fitted on each half
of them and judged on the other.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor

from pluribus.calibration_record import MAHALANOBIS, Calibration
from pluribus.distance import distance, fit_distance, outputs_side_by_side
from pluribus.metrics.ood import CRITERIA, auroc
from pluribus.prediction import BernoulliPrediction, CategoricalPrediction, Prediction

FEWEST = 8
"""Fewest samples to choose by; with fewer the usual score is taken."""


def usual_score(prediction: Prediction) -> str:
    """Return the score where there is nothing to choose by: entropy, or the variance."""
    return next(name for name in ("entropy", "variance", "epistemic_variance") if _suits(name, prediction))


def rate_scores(clean: Prediction, classes: Tensor, altered: Mapping[str, Prediction]) -> dict[str, float]:
    """Return the AUROC of each score that the prediction has, averaged over the alterations.

    Args:
        clean: Raw predictions of validation samples.
        classes: Their classes as `groups_of` returns them, `[batch]`.
        altered: Raw predictions of the same samples altered, in the same order, once or several times.
    """
    found = {}
    for name in CRITERIA:
        if _suits(name, clean):
            usual = clean.score(name)
            found[name] = fmean(auroc(usual, one.score(name)) for one in altered.values())
    features = outputs_side_by_side(clean.members, clean.weights)
    if features is not None:
        strange = [outputs_side_by_side(one.members, one.weights) for one in altered.values()]
        found[MAHALANOBIS] = _rate_distance(features, classes, [one for one in strange if one is not None])
    return found


def _suits(name: str, prediction: Prediction) -> bool:
    return isinstance(prediction, CRITERIA[name].kinds)


def _rate_distance(features: Tensor, classes: Tensor, altered: Sequence[Tensor]) -> float:
    """Return the AUROC of the distance, fitted on the even samples and judged on the odd ones, and back."""
    even = torch.arange(len(features)) % 2 == 0
    found = []
    for fitted in (even, ~even):
        means, whitening = fit_distance(features[fitted], classes[fitted])
        usual = distance(features[~fitted], means, whitening)
        for one in altered:
            # Several sets of the same samples lie one after the other.
            judged = (~fitted).repeat(len(one) // len(features))
            found.append(auroc(usual, distance(one[judged], means, whitening)))
    return fmean(found)


def groups_of(prediction: Prediction, target: Tensor) -> Tensor:
    """Return the class of each sample, `[batch]`, on the CPU; 0 where samples have no single class."""
    single = target.numel() == len(target)
    if isinstance(prediction, CategoricalPrediction | BernoulliPrediction) and single:
        return target.reshape(-1).long().cpu()
    return torch.zeros(len(target), dtype=torch.long)


def fit_score(name: str, prediction: Prediction, classes: Tensor) -> Calibration:
    """Return a calibration with the name of a score and its parameters, fitted to usual samples."""
    if name != MAHALANOBIS:
        return Calibration(score=name)
    features = outputs_side_by_side(prediction.members, prediction.weights)
    assert features is not None
    means, whitening = fit_distance(features, classes)
    return Calibration(score=name, means=means, whitening=whitening)
