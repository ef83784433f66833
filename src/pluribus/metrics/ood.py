"""Out-of-distribution detection: uncertainty should tell data of another kind from the test data.

A criterion gives each sample a score, higher for a stranger one. Out of distribution is the positive class:

    AUROC = P(s_out > s_in) + 1/2 P(s_out = s_in)                                 (1)
    AUPR = Σ_t (recall_t - recall_t-1) precision_t                                (2)
    FPR95 = min_t P(s_in >= t),    t with P(s_out >= t) >= 0.95                   (3)

    criterion            score                                         paper
    max_probability      minus the greatest mean probability           Hendrycks & Gimpel, ICLR 2017
    max_logit            minus the greatest mean logit                 Hendrycks et al., ICML 2022
    entropy              of the mean probabilities                     Lakshminarayanan et al., NeurIPS 2017
    mutual_information   that entropy less the members' mean entropy   Depeweg et al., ICML 2018
    variation_ratio      share of members against the majority         Beluch et al., CVPR 2018
    variance             of a Gaussian mixture                         Lakshminarayanan et al., NeurIPS 2017
    epistemic_variance   between the members' means                    Depeweg et al., ICML 2018

The first five are those of Laurent et al., "Packed-Ensembles", ICLR 2023, App. E. Equal scores share a
threshold t, so the order of the samples does not matter. Choices: (2) sums steps and does not
interpolate. (3) finds at least 95 % of the samples out of distribution and counts the test samples flagged
with them; the other convention in use keeps at least 95 % of the test samples and counts those out of
distribution kept with them: `fpr95(..., positive="in")`. Scores are those of the raw prediction, before any
calibration.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from pluribus.calibration_record import SCORES
from pluribus.errors import InputError
from pluribus.metrics.metric import Direction, Metric
from pluribus.metrics.samples import exact, flat
from pluribus.prediction import ContinuousPrediction, DiscretePrediction, GaussianPrediction, Prediction
from pluribus.ranges import check

# The share of positives that FPR95 must find, as its name has it.
RECALL = 0.95


@dataclass(frozen=True)
class Criterion:
    """An OOD score: its function, the predictions that have it, and its name in words."""

    score: Callable[[Any], Tensor]
    kinds: tuple[type[Prediction], ...]
    words: str
    paper: str


GIMPEL = "Hendrycks & Gimpel, A baseline for detecting out-of-distribution examples, ICLR 2017"
SCALING = "Hendrycks et al., Scaling out-of-distribution detection for real-world settings, ICML 2022"
DEEP = "Lakshminarayanan et al., Simple and scalable predictive uncertainty estimation, NeurIPS 2017"
SPLIT = "Depeweg et al., Decomposition of uncertainty in Bayesian deep learning, ICML 2018"
ACTIVE = "Beluch et al., The power of ensembles for active learning in image classification, CVPR 2018"

_discrete, _continuous, _gaussian = (DiscretePrediction,), (ContinuousPrediction,), (GaussianPrediction,)


def _summary(name: str) -> Callable[[Any], Tensor]:
    """Return the function of a score, which is read from the raw prediction."""
    summary, sign = SCORES[name]

    def score(prediction: Prediction) -> Tensor:
        values: Tensor = sign * getattr(prediction.raw, summary)
        return values

    return score


def _criterion(name: str, kinds: tuple[type[Prediction], ...], words: str, paper: str) -> Criterion:
    return Criterion(_summary(name), kinds, words, paper)


CRITERIA = {
    "max_probability": _criterion("max_probability", _discrete, "a low maximum probability", GIMPEL),
    "max_logit": _criterion("max_logit", _discrete, "a low maximum logit", SCALING),
    "entropy": _criterion("entropy", _discrete, "a high entropy", DEEP),
    "mutual_information": _criterion("mutual_information", _discrete, "a high mutual information", SPLIT),
    "variation_ratio": _criterion("variation_ratio", _discrete, "many members against the majority", ACTIVE),
    "variance": _criterion("variance", _gaussian, "a high variance", DEEP),
    "epistemic_variance": _criterion(
        "epistemic_variance", _continuous, "a high variance between members", SPLIT
    ),
}


def ood_scores(prediction: Prediction) -> dict[str, Tensor]:
    """Return the scores by all criteria of a prediction, each `[samples]`, higher for a stranger sample.

    Every position of a dense prediction, label of a multilabel one, and target of a regression is a sample.
    """
    prediction = flat(prediction)
    suiting = {name: one for name, one in CRITERIA.items() if isinstance(prediction, one.kinds)}
    return {name: criterion.score(prediction).flatten() for name, criterion in suiting.items()}


def auroc(in_scores: Tensor, out_scores: Tensor) -> float:
    """Compute Eq. (1): area under the curve of true against false positives, in [0, 1]; 1/2 by chance.

    >>> auroc(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.3, 0.9]))
    0.9166666666666666
    """
    inside, outside = _sorted(in_scores, out_scores)
    below, up_to = (torch.searchsorted(inside, outside, side=side).sum() for side in ("left", "right"))
    return (below + up_to).item() / (2 * len(inside) * len(outside))


def aupr(in_scores: Tensor, out_scores: Tensor) -> float:
    """Compute Eq. (2): average precision, in [0, 1]; the share of samples out of distribution by chance."""
    inside, outside = _sorted(in_scores, out_scores)
    thresholds, counts = torch.unique(outside, return_counts=True)
    found, mistaken = _at_least(outside, thresholds), _at_least(inside, thresholds)
    precision, steps = found / (found + mistaken), exact(counts) / len(outside)
    return (steps * precision).sum().item()


def fpr95(in_scores: Tensor, out_scores: Tensor, positive: Literal["out", "in"] = "out") -> float:
    """Compute Eq. (3): false positives where at least 95 % of the positives are found, in [0, 1].

    Args:
        in_scores: Of test data, `[samples]`.
        out_scores: Of data out of distribution, `[samples]`.
        positive: What is to be found. `"out"`: the share of test samples flagged when 95 % of those out of
            distribution are. `"in"`: the share of the latter kept when 95 % of test samples are.

    """
    check("positive", positive, choices=("out", "in"))
    inside, outside = _sorted(in_scores, out_scores)
    # Finding test data among the others is the same task with all signs turned.
    if positive == "in":
        inside, outside = -outside.flip(0), -inside.flip(0)
    shares = torch.arange(1, len(outside) + 1, dtype=torch.float64) / len(outside)
    enough = int((shares >= RECALL).nonzero()[0])
    return _at_least(inside, outside.flip(0)[enough]).item() / len(inside)


def detect(
    prediction: Prediction, out: Prediction, measure: Callable[[Tensor, Tensor], float], criterion: str
) -> float:
    """Measure how well a criterion tells a prediction on test data from one out of distribution."""
    return measure(*(CRITERIA[criterion].score(flat(one)) for one in (prediction, out)))


def _sorted(in_scores: Tensor, out_scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return both sets of scores, checked, in ascending order."""
    found = []
    for name, scores in (("in_scores", in_scores), ("out_scores", out_scores)):
        lost = int(scores.isnan().sum())
        if lost or not scores.numel():
            raise InputError(
                f"{name} must be numbers, at least 1, got {scores.numel()}, of which {lost} are NaN. "
                "Give the scores of both data sets."
            )
        found.append(exact(scores).flatten().sort().values)
    return found[0], found[1]


def _at_least(ascending: Tensor, thresholds: Tensor) -> Tensor:
    """Return how many values reach each threshold."""
    return exact(len(ascending) - torch.searchsorted(ascending, thresholds))


@dataclass(frozen=True)
class Measure:
    """A function of two sets of scores, and its meaning in words."""

    function: Callable[[Tensor, Tensor], float]
    direction: Direction
    title: str
    words: str


MEASURES = {
    "auroc": Measure(
        auroc, "higher", "AUROC", "How often out-of-distribution data look stranger than test data, by {}."
    ),
    "aupr": Measure(
        aupr, "higher", "AUPR", "Precision of finding out-of-distribution data by {}, averaged over recall."
    ),
    "fpr95": Measure(
        fpr95,
        "lower",
        "FPR95",
        "Share of test data flagged if 95 % of out-of-distribution data are, by {}.",
    ),
}

ROWS = tuple(
    Metric(
        name=f"{short}_{name}",
        function=partial(detect, measure=measure.function, criterion=name),
        direction=measure.direction,
        range=(0, 1),
        title=f"{measure.title}, {name.replace('_', ' ')}",
        explanation=measure.words.format(criterion.words),
        paper=criterion.paper,
        kinds=criterion.kinds,
        against="out",
    )
    for short, measure in MEASURES.items()
    for name, criterion in CRITERIA.items()
)
