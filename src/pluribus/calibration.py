"""Corrections fitted on validation data after training: a temperature, and conformal sets and intervals.

Guo et al., "On calibration of modern neural networks", ICML 2017: probabilities sharpened or softened by
one number, fitted by the negative log-likelihood,

    p_T(c) ∝ p(c)^(1/T).                                                          (1)

Here p is the ensemble's mean probability. A validation set without a mistake would give T = 0, and one with a
single mistake too small a T. Therefore one pseudo-sample is added to the n samples. Each class is its label
with equal probability, and its prediction is the average over all samples,

    −Σ_i log p_T(y_i | x_i) − 1/n Σ_i 1/C Σ_c log p_T(c | x_i).                   (3)

Split conformal prediction (Vovk et al., 2005; Sadinle et al.,
2019; Romano et al., 2019): with the quantile q of n validation scores at the level

    ⌈(n + 1)(1 − α)⌉ / n                                                          (2)

sets {c : 1 − p(c) ≤ q} and intervals [low − q, high + q] hold the truth with probability at least 1 − α
where validation and test data are exchangeable.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.likelihood import Categorical
from pluribus.prediction import CategoricalPrediction, GaussianPrediction, align
from pluribus.ranges import invalid

TEMPERATURES = (1 / 64, 64.0)
# Steps of golden section: the bracket shrinks to 1e-12 of its width.
STEPS = 60


def with_temperature(prediction: CategoricalPrediction, temperature: float) -> CategoricalPrediction:
    """Return the ensemble's probabilities at a temperature, Eq. (1), as a prediction of one member."""
    return Categorical().prediction((prediction.log_probabilities / temperature).unsqueeze(0))


def fit_temperature(prediction: CategoricalPrediction, target: Tensor) -> float:
    """Return the temperature in [1/64, 64] with the least smoothed negative log-likelihood, Eq. (3).

    Args:
        prediction: Predictions of validation samples.
        target: Their classes, `[batch, ...]`; -100 leaves out a position of a dense target.
    """
    logs = prediction.log_probabilities.double().clamp(min=-1e4)

    def loss(exponent: float) -> float:
        scaled = (logs / math.exp(exponent)).log_softmax(1)
        # The pseudo-sample keeps the minimum finite where every label is right: sharper is not always better.
        pseudo = -scaled.mean()
        return (torch.nn.functional.nll_loss(scaled, target, reduction="sum") + pseudo).item()

    low, high = (math.log(end) for end in TEMPERATURES)
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = loss(left), loss(right)
    # The loss is convex in 1/T, so it has one minimum in log T.
    for _ in range(STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = loss(right)
    return math.exp((low + high) / 2)


def conformal_quantile(scores: Tensor, level: float) -> float:
    """Return the quantile of Eq. (2).

    At least the share `level`, in (0, 1), of exchangeable new scores do not exceed it. With too few scores
    it is infinite.
    """
    if not 0 < level < 1:
        raise invalid("level", "above 0 and below 1", level)
    if not scores.numel():
        raise InputError("conformal prediction needs validation samples, got none.")
    rank = math.ceil((scores.numel() + 1) * level)
    if rank > scores.numel():
        return math.inf
    return scores.flatten().sort().values[rank - 1].item()


@dataclass(frozen=True)
class ConformalSets:
    """Sets of classes that hold the true one with probability at least `level`.

    Attributes:
        level: The required probability, in (0, 1).
        quantile: The quantile of the validation scores 1 − p(true class).
    """

    level: float
    quantile: float

    @classmethod
    def fit(cls, prediction: CategoricalPrediction, target: Tensor, level: float = 0.9) -> "ConformalSets":
        """Return the sets whose quantile is that of validation data."""
        scores = 1 - prediction.probabilities.gather(1, target.unsqueeze(1)).squeeze(1)
        return cls(level, conformal_quantile(scores, level))

    def sets(self, prediction: CategoricalPrediction) -> Tensor:
        """Return a mask of the classes in the set, `[batch, classes, ...]`."""
        return 1 - prediction.probabilities <= self.quantile

    def coverage(self, prediction: CategoricalPrediction, target: Tensor) -> float:
        """Return the share of samples whose class is in their set."""
        return self.sets(prediction).gather(1, target.unsqueeze(1)).double().mean().item()

    def size(self, prediction: CategoricalPrediction) -> float:
        """Return the mean number of classes in a set."""
        return self.sets(prediction).sum(1).double().mean().item()


@dataclass(frozen=True)
class ConformalIntervals:
    """Intervals that hold the true value with probability at least `level`.

    Attributes:
        level: The required probability, in (0, 1).
        quantile: The number by which both ends of the mixture's interval move out; negative moves in.
    """

    level: float
    quantile: float

    @classmethod
    def fit(cls, prediction: GaussianPrediction, target: Tensor, level: float = 0.9) -> "ConformalIntervals":
        """Return the intervals whose quantile is that of validation data."""
        low, high = prediction.interval(level)
        target = align(target, low.shape)
        return cls(level, conformal_quantile(torch.maximum(low - target, target - high), level))

    def interval(self, prediction: GaussianPrediction) -> tuple[Tensor, Tensor]:
        """Return both ends, `[batch, ...]` each."""
        low, high = prediction.interval(self.level)
        return low - self.quantile, high + self.quantile

    def coverage(self, prediction: GaussianPrediction, target: Tensor) -> float:
        """Return the share of values inside their interval."""
        low, high = self.interval(prediction)
        target = align(target, low.shape)
        return ((low <= target) & (target <= high)).double().mean().item()

    def width(self, prediction: GaussianPrediction) -> float:
        """Return the mean width."""
        low, high = self.interval(prediction)
        return (high - low).clamp(min=0).double().mean().item()
