"""Conformal sets and intervals: they hold the truth with a given probability, whatever the network is worth.

Split conformal prediction (Vovk et al., 2005; Sadinle et al., 2019; Romano et al., 2019): with the quantile q
of n validation scores at the level

    ⌈(n + 1)(1 − α)⌉ / n                                                          (1)

sets {c : 1 − p(c) ≤ q} and intervals [low − q, high + q] hold the truth with probability at least 1 − α
where validation and test data are exchangeable. Where a sample has k labels, positions or targets, the rank
is ⌈k (n + 1)(1 − α)⌉ of all n k scores, and the level holds for their average (Angelopoulos et al.,
"Conformal risk control", 2022).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.prediction import CategoricalPrediction, GaussianPrediction, align
from pluribus.ranges import invalid


def conformal_quantile(scores: Tensor, level: float, samples: int | None = None) -> float:
    """Return the quantile of Eq. (1).

    At least the share `level`, in (0, 1), of exchangeable new scores do not exceed it. With too few scores
    it is infinite.

    Args:
        scores: Of validation samples, in any shape.
        level: The share.
        samples: How many samples the scores are of, if a sample has several; as many as scores.
    """
    if not 0 < level < 1:
        raise invalid("level", "above 0 and below 1", level)
    if not scores.numel():
        raise InputError("conformal prediction needs validation samples, got none.")
    count = scores.numel()
    independent = samples or count
    # Rounded first: 0.9 has no exact binary form, and 10 × 0.9 must not become 10.
    rank = math.ceil(round(count * (independent + 1) / independent * level, 9))
    if rank > count:
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
