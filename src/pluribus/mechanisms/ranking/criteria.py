"""Metrics of sets of members, from sums over their members.

A set's probabilities, densities and moments are means over its members, by their weights. Where a metric
follows from these, all sets of P chosen members and one candidate are measured at once: a sum over those
chosen is kept, and every candidate is added to it.

    KL(N(μ, σ²) ‖ N(μ_S, σ_S²)) = log(σ_S/σ) + (σ² + (μ − μ_S)²) / (2 σ_S²) − 1/2      (1)

(1) is the quality Q of Oleksienko & Iosifidis, "Layer Ensembles", IEEE MLSP 2023. Their Eq. (2) prints the
other direction; this is that of their code, with its 0.001 added to both standard deviations.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pluribus.errors import InputError
from pluribus.likelihood import MISSING, check_finite
from pluribus.metrics import METRICS
from pluribus.metrics.samples import exact, samples
from pluribus.prediction import (
    ContinuousPrediction,
    DiscretePrediction,
    GaussianPrediction,
    Prediction,
    align,
    gaussian_nll_per_sample,
)
from pluribus.ranges import nearest

# Keeps the divergence of a single member, which has no spread, finite; the value of the paper's code.
RIDGE = 1e-3
# Numbers that are measured together: 128 MiB of float64.
BLOCK = 1 << 24
# The weight of members whose weight is 0, so that they too have an order.
NEXT_TO_NOTHING = 1e-200


@dataclass(frozen=True)
class Criterion:
    """A metric of sets of members that follows from the mean of what they contribute.

    Attributes:
        values: What each member contributes, `[members, ...]`.
        score: Computes the metric, `[sets]`, from the means of sets, `[sets, ...]`.
        logs: Whether the values are logarithms of what is averaged.
        weights: Of the members, `[members]`; values are multiplied by it.
    """

    values: Tensor
    score: Callable[[Tensor], Tensor]
    logs: bool = False
    weights: Tensor = field(default_factory=lambda: torch.ones(()))

    def weighted(self, weights: Tensor) -> "Criterion":
        """Return the same metric for members of these weights, `[members]`; the largest becomes 1."""
        weights = (exact(weights) / weights.max().cpu()).clamp(min=NEXT_TO_NOTHING)
        by_row = weights.view(-1, *[1] * (self.values.ndim - 1))
        values = self.values + by_row.log() if self.logs else self.values * by_row
        return replace(self, values=values, weights=weights)

    def empty(self) -> Tensor:
        """Return the sum over no member."""
        return torch.full_like(self.values[0], -math.inf if self.logs else 0.0)

    def add(self, total: Tensor, values: Tensor) -> Tensor:
        """Return a sum with the contributions of one member, or of one for each of several sets."""
        return torch.logaddexp(total, values) if self.logs else total + values

    def with_each(self, total: Tensor, size: float) -> Tensor:
        """Return the metric of each member together with a set of this sum and total weight, `[members]`."""
        at_once = max(1, BLOCK // max(1, self.values[0].numel()))
        sizes = (size + self.weights).view(-1, *[1] * total.ndim)
        found = []
        for block, counts in zip(torch.split(self.values, at_once), torch.split(sizes, at_once), strict=True):
            sums = self.add(total, block)
            found.append(self.score(sums - counts.log() if self.logs else sums / counts))
        return torch.cat(found)


def is_higher_better(metric: str) -> bool:
    """Return whether greater values of a metric by which members may be ranked are better."""
    return metric in METRICS and METRICS[metric].direction == "higher"


def criterion(prediction: Prediction, target: Tensor, metric: str) -> Criterion:
    """Return the metric of that name for any set of a prediction's members.

    Args:
        prediction: Of all members.
        target: As for the metric; for `kl` the mean and the standard deviation of a reference,
            `[batch, ..., 2]`.
        metric: A name; for a Gaussian prediction `nll` is `gaussian_nll`.
    """
    known = {
        name: make
        for kind, makers in CRITERIA.items()
        if isinstance(prediction, kind)
        for name, make in makers.items()
    }
    if metric not in known:
        raise InputError(
            f"members of a {type(prediction).__name__} are ranked by one of {', '.join(known)}, "
            f"got {metric!r}.{nearest(metric, known)}"
        )
    if metric != "kl":
        prediction, target = samples(prediction, target)
    return known[metric](prediction, target.cpu()).weighted(prediction.weights)


def divergence(reference: Tensor, moments: Tensor) -> Tensor:
    """Return Eq. (1) of every sample, `[sets, batch, ...]`.

    Args:
        reference: μ and σ, `[batch, ..., 2]`.
        moments: The sets' means of the members' means and of their squares, `[sets, 2, batch, ...]`.
    """
    mean, square = moments[:, 0], moments[:, 1]
    std = (square - mean.square()).clamp(min=0).sqrt() + RIDGE
    wanted, spread = reference[..., 0], reference[..., 1] + RIDGE
    return (std / spread).log() + (spread.square() + (wanted - mean).square()) / (2 * std.square()) - 0.5


def _mean(values: Tensor) -> Tensor:
    return values.flatten(1).mean(1)


def _nll(prediction: Any, target: Tensor) -> Criterion:
    logs = exact(prediction.member_log_probabilities)[:, torch.arange(len(target)), target]
    return Criterion(logs, lambda means: -_mean(means), logs=True)


def _brier(prediction: Any, target: Tensor) -> Criterion:
    values = exact(prediction.member_log_probabilities).exp()
    right = one_hot(target, values.shape[2])
    return Criterion(values, lambda means: _mean((means - right).square().sum(2)))


def _accuracy(prediction: Any, target: Tensor) -> Criterion:
    values = exact(prediction.member_log_probabilities).exp()
    return Criterion(values, lambda means: _mean(exact(prediction._labels(means, 2) == target)))


def _rmse(prediction: Any, target: Tensor) -> Criterion:
    return Criterion(exact(prediction.means), lambda means: _mean((means - target).square()).sqrt())


def _mae(prediction: Any, target: Tensor) -> Criterion:
    return Criterion(exact(prediction.means), lambda means: _mean((means - target).abs()))


def _gaussian_nll(prediction: Any, target: Tensor) -> Criterion:
    means, centre = _centred(prediction)

    def score(moments: Tensor) -> Tensor:
        mean, square = moments[:, 0], moments[:, 1]
        return _mean(gaussian_nll_per_sample(target - centre, mean, square - mean.square()))

    return Criterion(torch.stack((means, means.square() + exact(prediction.variances)), 1), score)


def _log_predictive_density(prediction: Any, target: Tensor) -> Criterion:
    logs = -gaussian_nll_per_sample(target, exact(prediction.means), exact(prediction.variances))
    return Criterion(logs, _mean, logs=True)


def _kl(prediction: Any, reference: Tensor) -> Criterion:
    means, centre = _centred(prediction)
    if reference.ndim < 2 or reference.shape[-1] != 2 or not (reference[..., 1] >= 0).all():
        raise InputError(
            "a reference must be means and standard deviations, [batch, ..., 2], the latter at least 0, "
            f"got shape {tuple(reference.shape)}. Use torch.stack((mean, std), -1)."
        )
    check_finite("a reference", reference, MISSING)
    wanted, spread = (align(exact(part), centre.shape) for part in reference.unbind(-1))
    around = torch.stack((wanted - centre, spread), -1)
    return Criterion(
        torch.stack((means, means.square()), 1), lambda moments: _mean(divergence(around, moments))
    )


def _centred(prediction: Any) -> tuple[Tensor, Tensor]:
    """Return the members' means around a centre, and the centre.

    Around it, the mean square less the squared mean does not cancel.
    """
    means = exact(prediction.means)
    centre = means.mean(0)
    return means - centre, centre


CRITERIA: dict[type[Prediction], dict[str, Callable[[Any, Tensor], Criterion]]] = {
    DiscretePrediction: {"nll": _nll, "brier": _brier, "accuracy": _accuracy},
    GaussianPrediction: {
        "nll": _gaussian_nll,
        "gaussian_nll": _gaussian_nll,
        "log_predictive_density": _log_predictive_density,
    },
    ContinuousPrediction: {"rmse": _rmse, "mae": _mae, "kl": _kl},
}
"""By kind of prediction, the metrics by which members are ranked."""
