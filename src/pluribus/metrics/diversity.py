"""Diversity: how much the members of an ensemble differ, and whether they err together.

Disagreement: Fort, Hu & Lakshminarayanan, "Deep ensembles: a loss landscape perspective", 2019. Mutual
information in and out of distribution: Laurent et al., "Packed-Ensembles", ICLR 2023, Table 7. Correlation:
Tumer & Ghosh, "Error correlation and error reduction in ensemble classifiers", Connection Science 8, 1996.
Ambiguity: Krogh & Vedelsby, "Neural network ensembles, cross validation, and active learning", NeurIPS 1994.

    disagreement = mean_ij P(label_i ≠ label_j)                                   (1)
    correlation = mean_ij corr(error_i, error_j)                                  (2)
    ambiguity = E Σ_m w_m (μ_m - μ)²                                              (3)

A mean over pairs i ≠ j weighs each by w_i w_j. Neither needs the pairs one by one:

    Σ_i≠j w_i w_j a_i·a_j = |Σ_i w_i a_i|² - Σ_i w_i² |a_i|²                      (4)

    symbol   here
    w        prediction.weights
    error    1 for a wrong label and 0 for a right one; of numbers, the mean less the target
    μ        prediction.mean

More diversity is no merit in itself: members that err at random differ most.
"""

import math

import torch
from torch import Tensor

from pluribus.metrics.metric import Metric
from pluribus.metrics.samples import average, exact, samples
from pluribus.prediction import ContinuousPrediction, DiscretePrediction

PACKED = "Laurent et al., Packed-Ensembles for efficient uncertainty estimation, ICLR 2023"
# Relative; what rounding leaves of a difference of equal numbers is below.
ROUNDING = 1e-12


def disagreement(prediction: DiscretePrediction, target: Tensor) -> float:
    """Compute Eq. (1): chance that two members label a sample differently, in [0, 1]; NaN for one member."""
    prediction, _ = samples(prediction, target)
    weights, labels = exact(prediction.weights), prediction.member_labels.T.cpu()
    votes = torch.zeros(prediction.log_probabilities.shape, dtype=weights.dtype)
    votes = votes.scatter_add(1, labels, weights.expand(len(votes), -1))
    # Of all pairs, those of a member with itself included.
    agreement = votes.square().sum(1).mean()
    return _per_pair(weights.sum() ** 2 - agreement, weights, least=0.0)


def error_correlation(prediction: DiscretePrediction | ContinuousPrediction, target: Tensor) -> float:
    """Compute Eq. (2): correlation of two members' errors, in [-1, 1].

    A member whose errors are all equal correlates with none and does not count; NaN if fewer than two do.
    """
    prediction, target = samples(prediction, target)
    errors = exact(_errors(prediction, target)).flatten(1)
    centred = errors - errors.mean(1, keepdim=True)
    sizes, least = centred.norm(dim=1), ROUNDING * errors.norm(dim=1)
    varied, weights = sizes > least, exact(prediction.weights)
    weights, units = weights[varied], centred[varied] / sizes[varied].unsqueeze(1)
    together = (weights.unsqueeze(1) * units).sum(0).square().sum()
    # Eq. (4), where |a_i| = 1.
    return _per_pair(together - weights.square().sum(), weights, least=-1.0)


def mutual_information(prediction: DiscretePrediction, target: Tensor) -> float:
    """Compute the mean mutual information of outcome and member in nats, in [0, log outcomes]."""
    prediction, _ = samples(prediction, target)
    return average(prediction.mutual_information)


def mutual_information_out(prediction: DiscretePrediction, out: DiscretePrediction) -> float:
    """Compute the mean mutual information on data out of distribution, where no target is needed."""
    return average(out.mutual_information)


def ambiguity(prediction: ContinuousPrediction, target: Tensor) -> float:
    """Compute Eq. (3): by how much the members' mean squared error exceeds the ensemble's, in [0, ∞]."""
    prediction, _ = samples(prediction, target)
    return average(prediction.epistemic)


def _errors(prediction: DiscretePrediction | ContinuousPrediction, target: Tensor) -> Tensor:
    if isinstance(prediction, DiscretePrediction):
        return prediction.member_labels != target
    return prediction.means - target


def _per_pair(total: Tensor, weights: Tensor, least: float) -> float:
    """Mean over pairs of members, in [least, 1], from the weighted sum over all of them."""
    pairs = (weights.sum() ** 2 - weights.square().sum()).item()
    return min(max(total.item() / pairs, least), 1.0) if pairs > ROUNDING else math.nan


ROWS = (
    Metric(
        name="disagreement",
        function=disagreement,
        direction="higher",
        range=(0, 1),
        title="Disagreement",
        explanation="Chance that two members give a sample different labels: higher is more diverse.",
        paper="Fort et al., Deep ensembles: a loss landscape perspective, 2019",
        kinds=(DiscretePrediction,),
        members=2,
    ),
    Metric(
        name="error_correlation",
        function=error_correlation,
        direction="lower",
        range=(-1, 1),
        title="Error correlation",
        explanation="How much the members err on the same samples: lower is more diverse.",
        paper="Tumer & Ghosh, Error correlation and error reduction in ensemble classifiers, 1996",
        kinds=(DiscretePrediction, ContinuousPrediction),
        members=2,
    ),
    Metric(
        name="mutual_information",
        function=mutual_information,
        direction="higher",
        range=(0, math.inf),
        title="Mutual information, in",
        explanation="Uncertainty, in nats, that comes from members contradicting one another on test data.",
        paper=PACKED,
        kinds=(DiscretePrediction,),
    ),
    Metric(
        name="mutual_information_out",
        function=mutual_information_out,
        direction="higher",
        range=(0, math.inf),
        title="Mutual information, out",
        explanation="Uncertainty, in nats, that comes from members contradicting one another "
        "on out-of-distribution data.",
        paper=PACKED,
        kinds=(DiscretePrediction,),
        against="out",
    ),
    Metric(
        name="ambiguity",
        function=ambiguity,
        direction="higher",
        range=(0, math.inf),
        title="Ambiguity",
        explanation="Squared error that averaging takes away from the members: higher is more diverse.",
        paper="Krogh & Vedelsby, Neural network ensembles, cross validation, and active learning, 1994",
        kinds=(ContinuousPrediction,),
    ),
)
