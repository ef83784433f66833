"""Scale of the variance: predicted variances made larger or smaller by one number.

For numbers with a model of noise, the variance of the mixture is multiplied by

    s = (1 + Σ_i (y_i − μ_i)² / σ_i²) / (1 + n),                                  (1)

which maximises the likelihood of the Gaussian with the mixture's mean and variance; the 1 stands for one
pseudo-sample with the right variance. In nats per number, s changes the negative log-likelihood by

    ½ (log s + e (1/s − 1)),   e = 1/n Σ_i (y_i − μ_i)² / σ_i².                   (2)

s < 1 makes predictions surer, which is right on clean data and may be wrong on shifted data. Where there is
corrupted data, it is applied only if Eq. (2) is at most 0 on it. Otherwise Eq. (1) of the corrupted data is,
if that is below 1. Tables have no corruptions of their own, and keep the s of clean data.
"""

import math

from torch import Tensor

from pluribus.metrics.samples import average, samples
from pluribus.prediction import GaussianPrediction


def variance_scale(prediction: GaussianPrediction, target: Tensor) -> float:
    """Return the scale of Eq. (1)."""
    error, count = _standardised(prediction, target)
    return (1 + count * error) / (1 + count)


def safe_scale(fitted: float, corrupted: GaussianPrediction, target: Tensor) -> tuple[float, str]:
    """Return the scale to apply, and a note where it is not the fitted one.

    Args:
        fitted: By clean validation data.
        corrupted: Raw predictions of corrupted validation data.
        target: Their targets.
    """
    error, _ = _standardised(corrupted, target)
    if fitted >= 1 or math.log(fitted) + error * (1 / fitted - 1) <= 0:
        return fitted, ""
    safe = min(1.0, variance_scale(corrupted, target))
    return safe, (
        f"The scale of the variance is {safe:.3g}, though {fitted:.3g} fits clean validation data: on "
        "corrupted data that raises the NLL."
    )


def _standardised(prediction: GaussianPrediction, target: Tensor) -> tuple[float, int]:
    """Return the mean squared error in units of the variance, and the number of targets."""
    prediction, target = samples(prediction, target)
    errors = (prediction.mean - target).square() / prediction.variance
    return average(errors), errors.numel()
