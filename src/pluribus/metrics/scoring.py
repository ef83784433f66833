"""Scoring: how right a prediction is, by its label and by its probabilities.

Macro F1 is the mean of the classes' F1, one of two definitions in use: Opitz & Burst, "Macro F1 and
macro F1", arXiv:1911.03347. Proper scores: Brier, "Verification of forecasts expressed in terms of
probability", Monthly Weather Review 78, 1950; Gneiting & Raftery, "Strictly proper scoring rules,
prediction, and estimation", JASA 102, 2007.

    F1 = 1/|C| Σ_c 2 TP_c / (2 TP_c + FP_c + FN_c)                                (1)
    NLL = -1/n Σ_i log p(y_i | x_i)                                               (2)
    Brier = 1/n Σ_i Σ_c (p(c | x_i) - 1[y_i = c])²                                (3)

    symbol   here
    n        samples: every position of a dense prediction, every label of a multilabel one
    C        the classes among targets and predicted labels
    p        prediction.log_probabilities, a Bernoulli prediction having the outcomes no and yes

Deviations: the logarithm in (2) is exact; code that adds 1e-8 to p bounds it by 18.4. Brier's sum (3)
runs over both outcomes of a Bernoulli prediction too, twice what is sometimes called the binary score.
"""

import math

import torch
from torch import Tensor

from pluribus.metrics.metric import Metric
from pluribus.metrics.samples import average, exact, samples
from pluribus.prediction import CategoricalPrediction, DiscretePrediction
from pluribus.ranges import check


def accuracy(prediction: DiscretePrediction, target: Tensor) -> float:
    """Compute the share of samples whose most probable outcome is the target, in [0, 1]."""
    prediction, target = samples(prediction, target)
    return average(prediction.labels == target)


def top_k_accuracy(prediction: CategoricalPrediction, target: Tensor, k: int = 5) -> float:
    """Compute the share of samples whose target is among the k most probable classes, in [0, 1].

    Of equally probable classes the first come first, so that `k=1` is the accuracy.
    """
    check("k", k, int, at_least=1)
    prediction, target = samples(prediction, target)
    first = prediction.log_probabilities.argsort(stable=True, dim=1, descending=True)[:, :k]
    return average((first == target.unsqueeze(1)).any(1))


def macro_f1(prediction: DiscretePrediction, target: Tensor) -> float:
    """Compute Eq. (1), in [0, 1]; a class that is never a target and never predicted does not count.

    Labels of a multilabel prediction are pooled: the classes are no and yes.
    """
    prediction, target = samples(prediction, target)
    labels, outcomes = prediction.labels, prediction.log_probabilities.shape[1]
    hits, wanted, given = (
        exact(torch.bincount(values, minlength=outcomes))
        for values in (target[labels == target], target, labels)
    )
    present = wanted + given > 0
    # 2 TP + FP + FN = wanted + given, so that false answers need not be counted.
    return average((2 * hits / (wanted + given))[present])


def nll(prediction: DiscretePrediction, target: Tensor) -> float:
    """Compute the negative log-likelihood in nats, Eq. (2), in [0, ∞]."""
    return average(nll_per_sample(*samples(prediction, target)))


def brier(prediction: DiscretePrediction, target: Tensor) -> float:
    """Compute the Brier score, Eq. (3), in [0, 2]."""
    return average(squared_distance(*samples(prediction, target)))


def nll_per_sample(prediction: DiscretePrediction, target: Tensor) -> Tensor:
    """Compute the summand of Eq. (2) of each sample that `samples` returns, `[samples]`."""
    # No logarithm is above 0, and minus zero would be printed as such.
    return prediction.log_probabilities.gather(1, target.unsqueeze(1)).abs().squeeze(1)


def squared_distance(prediction: DiscretePrediction, target: Tensor) -> Tensor:
    """Compute the summand of Eq. (3) of each sample that `samples` returns, `[samples]`."""
    errors = prediction.log_probabilities.exp()
    errors = errors.scatter_add(1, target.unsqueeze(1), errors.new_full((len(target), 1), -1))
    return errors.square().sum(1)


ROWS = (
    Metric(
        name="accuracy",
        function=accuracy,
        direction="higher",
        range=(0, 1),
        title="Accuracy",
        explanation="Share of samples whose most probable class is the right one.",
        kinds=(DiscretePrediction,),
    ),
    Metric(
        name="top5",
        function=top_k_accuracy,
        direction="higher",
        range=(0, 1),
        title="Top-5 accuracy",
        explanation="Share of samples whose right class is among the five most probable ones.",
        paper="Russakovsky et al., ImageNet large scale visual recognition challenge, IJCV 2015",
        kinds=(CategoricalPrediction,),
        outcomes=6,
    ),
    Metric(
        name="macro_f1",
        function=macro_f1,
        direction="higher",
        range=(0, 1),
        title="Macro F1",
        explanation="Balance of precision and recall, averaged so that rare classes count like others.",
        paper="Opitz & Burst, Macro F1 and macro F1, 2019",
        kinds=(DiscretePrediction,),
    ),
    Metric(
        name="nll",
        function=nll,
        direction="lower",
        range=(0, math.inf),
        title="NLL",
        explanation="Average surprise, in nats, at the right class: minus the logarithm of its probability.",
        paper="Gneiting & Raftery, Strictly proper scoring rules, prediction, and estimation, JASA 2007",
        kinds=(DiscretePrediction,),
    ),
    Metric(
        name="brier",
        function=brier,
        direction="lower",
        range=(0, 2),
        title="Brier score",
        explanation="Squared distance of the probabilities from certainty in the right class.",
        paper="Brier, Verification of forecasts expressed in terms of probability, 1950",
        kinds=(DiscretePrediction,),
    ),
)
