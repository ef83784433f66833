"""Regression: how near the numbers are, and how well their distribution fits.

    LPD = 1/n Σ_i log Σ_m w_m N(y_i; μ_m, σ_m²)                                   (1)
    NLL = -1/n Σ_i log N(y_i; μ, σ²)                                              (2)
    CRPS = E|Y - y| - 1/2 E|Y - Y'|,    Y, Y' drawn from the mixture              (3)
         = Σ_m w_m A(y - μ_m, σ_m²) - 1/2 Σ_mk w_m w_k A(μ_m - μ_k, σ_m² + σ_k²)
    A(μ, σ²) = 2 σ φ(μ/σ) + μ (2 Φ(μ/σ) - 1), the mean of |X| for X ~ N(μ, σ²)    (4)
    pinball = 1/|T| Σ_τ 1/n Σ_i max(τ (y_i - q_iτ), (τ - 1) (y_i - q_iτ))         (5)
    sharpness = √(1/n Σ_i σ_i²)                                                   (6)

    symbol         here
    n              samples times targets: all are averaged
    w, μ_m, σ_m²   prediction.weights, means, variances
    μ, σ²          prediction.mean, variance: those of the mixture
    q_iτ, T        prediction.quantile(τ), QUANTILES

(1) is the log predictive density of Hernández-Lobato & Adams, "Probabilistic backpropagation", ICML 2015,
and of Chang et al., "Ensemble model patching", 2019, App. D.7; with a fixed precision τ it cannot exceed
1/2 log(τ / 2π), -2.0702 at τ = 0.1. (2) takes the mixture for one Gaussian: Lakshminarayanan et al.,
NeurIPS 2017. (3): Grimit et al., "The continuous ranked probability score for circular variables",
QJRMS 132, 2006, Eq. (5); it takes members² evaluations per sample. Interval coverage and width: Khosravi et
al., "Comprehensive review of neural network-based prediction intervals", IEEE TNN 22, 2011. (5): Koenker &
Bassett, "Regression quantiles", Econometrica 46, 1978. (6): Gneiting, Balabdaoui & Raftery, "Probabilistic
forecasts, calibration and sharpness", JRSS B 69, 2007; it is about predictions alone, not about targets.
"""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from pluribus.mechanisms.members.axis import fork
from pluribus.metrics.metric import Metric
from pluribus.metrics.samples import average, samples
from pluribus.prediction import ContinuousPrediction, GaussianPrediction, gaussian_nll_per_sample

# The middle, the quartiles, and the ends of a 90 % interval. Each takes a bisection of all samples.
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def rmse(prediction: ContinuousPrediction, target: Tensor) -> float:
    """Compute the root of the mean squared error of the mean, in [0, ∞]."""
    prediction, target = samples(prediction, target)
    return math.sqrt(average((prediction.mean - target).square()))


def mae(prediction: ContinuousPrediction, target: Tensor) -> float:
    """Compute the mean absolute error of the mean, in [0, ∞]."""
    prediction, target = samples(prediction, target)
    return average((prediction.mean - target).abs())


def gaussian_nll(prediction: GaussianPrediction, target: Tensor) -> float:
    """Compute Eq. (2), in nats."""
    return average(joint_nll_per_sample(*samples(prediction, target)))


def joint_nll_per_sample(prediction: GaussianPrediction, target: Tensor) -> Tensor:
    """Compute the summand of Eq. (2) of each target that `samples` returns, `[batch, ...]`."""
    # The mixture is read as one Gaussian, so that there is one member.
    return gaussian_nll_per_sample(target, fork(prediction.mean, 1), fork(prediction.variance, 1))[0]


def log_predictive_density(prediction: GaussianPrediction, target: Tensor) -> float:
    """Compute Eq. (1), in nats: the logarithm of the members' mean density."""
    prediction, target = samples(prediction, target)
    return average(prediction.log_prob(target))


def interval_coverage(prediction: GaussianPrediction, target: Tensor, level: float = 0.95) -> float:
    """Compute the share of targets in their central interval, in [0, 1]; `level` if calibrated."""
    prediction, target = samples(prediction, target)
    low, high = prediction.interval(level)
    return average((low <= target) & (target <= high))


def coverage_gap(prediction: GaussianPrediction, target: Tensor, level: float = 0.95) -> float:
    """Compute the distance of the interval coverage from the level, in [0, 1]."""
    return abs(interval_coverage(prediction, target, level) - level)


def interval_width(prediction: GaussianPrediction, target: Tensor, level: float = 0.95) -> float:
    """Compute the mean width of the central intervals, in [0, ∞]."""
    prediction, _ = samples(prediction, target)
    low, high = prediction.interval(level)
    return average(high - low)


def quantile_loss(prediction: GaussianPrediction, target: Tensor, probability: float) -> float:
    """Compute the pinball loss of one quantile, a summand of Eq. (5), in [0, ∞], in the target's unit."""
    prediction, target = samples(prediction, target)
    errors = target - prediction.quantile(probability)
    return average(torch.maximum(probability * errors, (probability - 1) * errors))


def pinball(
    prediction: GaussianPrediction, target: Tensor, probabilities: Sequence[float] = QUANTILES
) -> float:
    """Compute the mean quantile loss, Eq. (5), in [0, ∞], in the unit of the target."""
    losses = [quantile_loss(prediction, target, one) for one in probabilities]
    return sum(losses) / len(losses)


def sharpness(prediction: GaussianPrediction, target: Tensor) -> float:
    """Compute Eq. (6), in [0, ∞], in the unit of the target, which is not read."""
    prediction, _ = samples(prediction, target)
    return math.sqrt(average(prediction.variance))


def crps(prediction: GaussianPrediction, target: Tensor) -> float:
    """Compute the continuous ranked probability score, Eq. (3), in [0, ∞], in the unit of the target."""
    return average(ranked_distance(*samples(prediction, target)))


def ranked_distance(prediction: GaussianPrediction, target: Tensor) -> Tensor:
    """Compute Eq. (3) of each target that `samples` returns, `[batch, ...]`."""
    components = zip(prediction.weights, prediction.means, prediction.variances, strict=True)
    spread = torch.zeros_like(target)
    # One member at a time: all pairs at once would take memory of the square of their number.
    for weight, mean, variance in components:
        spread += weight * _distance(prediction, mean, variance)
    return _distance(prediction, target, torch.zeros_like(target)) - spread / 2


def absolute_moment(mean: Tensor, variance: Tensor) -> Tensor:
    """Compute Eq. (4), elementwise; the variance is above 0."""
    std = variance.sqrt()
    ratio = mean / std
    density = (-ratio.square() / 2).exp() / math.sqrt(2 * math.pi)
    return 2 * std * density + mean * torch.erf(ratio / math.sqrt(2))


def _distance(prediction: GaussianPrediction, mean: Tensor, variance: Tensor) -> Tensor:
    """Compute the mean of |Y - X|, `[batch, ...]`, for a draw Y of the mixture and X ~ N(mean, variance)."""
    return prediction._average(absolute_moment(prediction.means - mean, prediction.variances + variance))


KHOSRAVI = "Khosravi et al., Comprehensive review of neural network-based prediction intervals, 2011"

_numbers = partial(Metric, direction="lower", range=(0, math.inf), kinds=(ContinuousPrediction,))
_gaussian = partial(Metric, direction="lower", range=(0, math.inf), kinds=(GaussianPrediction,))

ROWS = (
    _numbers(
        name="rmse",
        function=rmse,
        title="RMSE",
        explanation="Typical distance of the mean from the target, large errors counting most.",
    ),
    _numbers(
        name="mae",
        function=mae,
        title="MAE",
        explanation="Average distance of the mean from the target.",
    ),
    _gaussian(
        name="gaussian_nll",
        function=gaussian_nll,
        range=(-math.inf, math.inf),
        title="Gaussian NLL",
        explanation="Average surprise, in nats, at the target, all members taken together as one Gaussian.",
        paper="Lakshminarayanan et al., Simple and scalable predictive uncertainty estimation, NeurIPS 2017",
    ),
    _gaussian(
        name="log_predictive_density",
        function=log_predictive_density,
        direction="higher",
        range=(-math.inf, math.inf),
        title="LPD",
        explanation="Average logarithm of the density that the members together give the target.",
        paper="Hernández-Lobato & Adams, Probabilistic backpropagation, ICML 2015",
    ),
    _gaussian(
        name="coverage_95",
        function=interval_coverage,
        direction="higher",
        range=(0, 1),
        title="Coverage of 95 % intervals",
        explanation="Share of targets within their 95 % interval: below 0.95 is overconfident, above timid.",
        paper=KHOSRAVI,
    ),
    _gaussian(
        name="coverage_gap_95",
        function=coverage_gap,
        range=(0, 1),
        title="Coverage gap of 95 % intervals",
        explanation="How far the share of targets within their 95 % interval is from 0.95.",
        paper=KHOSRAVI,
    ),
    _gaussian(
        name="width_95",
        function=interval_width,
        title="Width of 95 % intervals",
        explanation="Average width of the 95 % intervals: narrower says more, if the coverage is right.",
        paper=KHOSRAVI,
    ),
    _gaussian(
        name="crps",
        function=crps,
        title="CRPS",
        explanation="Distance of the predicted distribution from the target, in the target's own unit.",
        paper="Grimit et al., The continuous ranked probability score for circular variables, QJRMS 2006",
    ),
    _gaussian(
        name="pinball",
        function=pinball,
        title="Quantile loss",
        explanation="Distance of five predicted quantiles from the target, weighted by the side it is on.",
        paper="Koenker & Bassett, Regression quantiles, Econometrica 1978",
    ),
    _gaussian(
        name="sharpness",
        function=sharpness,
        title="Sharpness",
        explanation="Typical predicted standard deviation: smaller says more, if the coverage is right.",
        paper="Gneiting et al., Probabilistic forecasts, calibration and sharpness, JRSS B 2007",
    ),
)
