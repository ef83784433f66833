"""Temperature: probabilities sharpened or softened by one number.

Guo et al., "On calibration of modern neural networks", ICML 2017, fitted by the negative log-likelihood:

    p_T(c) ∝ p(c)^(1/T).                                                          (1)

Here p is the ensemble's mean probability, after pooling. A validation set without a mistake would give T = 0,
and one with a single mistake too small a T. Therefore one pseudo-sample is added to the n samples. Each class
is its label with equal probability, and its prediction is the average over all samples,

    −Σ_i log p_T(y_i | x_i) − 1/n Σ_i 1/C Σ_c log p_T(c | x_i).                   (2)

It holds sharpening back, but it must not soften: its loss of 8 outweighs that of 60 samples, and T would be
1.2 where the labels ask for less than 1. Where Eq. (2) gives T > 1, labels alone decide how far above 1.

T < 1 makes probabilities sharper, which is right on clean data and may be wrong on shifted data. It is
applied only if the likelihood of corrupted samples is no worse. Where it is worse, the temperature that fits
these samples best is applied, if that is below 1: by convexity it is better on both than T = 1.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pluribus.calibration_record import Calibration
from pluribus.metrics.samples import average, samples
from pluribus.metrics.scoring import nll_per_sample
from pluribus.prediction import DiscretePrediction

TEMPERATURES = (1 / 64, 64.0)
# Steps of golden section: the bracket shrinks to 1e-12 of its width.
STEPS = 60
MOST_POSITIONS = 200_000
"""Positions of dense predictions by which a temperature is fitted; more change it by less than 1 %."""


def with_temperature(prediction: DiscretePrediction, temperature: float) -> DiscretePrediction:
    """Return the prediction with the ensemble's probabilities at a temperature, Eq. (1).

    Members, and with them the mutual information, stay as they are.
    """
    return prediction.calibrated(Calibration(temperature=temperature))


def fit_temperature(prediction: DiscretePrediction, target: Tensor) -> float:
    """Return the temperature in [1/64, 64] with the least smoothed negative log-likelihood, Eq. (2).

    Above 1 it is the one with the least negative log-likelihood of the samples alone.

    Args:
        prediction: Predictions of validation samples: classes, yes or no, or several labels.
        target: Their classes, `[batch, ...]`; -100 leaves out a position of a dense target.
    """
    prediction, target = samples(prediction.raw, target)
    step = math.ceil(len(target) / MOST_POSITIONS)
    logs = prediction.log_probabilities[::step].double().clamp(min=-1e4)
    target = target[::step]

    def loss(exponent: float, pseudo_samples: int) -> float:
        scaled = (logs / math.exp(exponent)).log_softmax(1)
        right = torch.nn.functional.nll_loss(scaled, target, reduction="sum")
        return (right - pseudo_samples * scaled.mean()).item()

    smoothed = math.exp(_minimum(lambda exponent: loss(exponent, 1)))
    if smoothed <= 1:
        return smoothed
    return max(1.0, math.exp(_minimum(lambda exponent: loss(exponent, 0))))


def _minimum(loss: Callable[[float], float]) -> float:
    """Return the log T with the least loss, by golden section.

    The losses are convex in 1/T, so they have one minimum in log T.
    """
    low, high = (math.log(end) for end in TEMPERATURES)
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = loss(left), loss(right)
    for _ in range(STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = loss(right)
    return (low + high) / 2


def safe_temperature(
    fitted: float, corrupted: DiscretePrediction | None, target: Tensor | None
) -> tuple[float, str]:
    """Return the temperature to apply, and a note where it is not the fitted one.

    Args:
        fitted: By clean validation data.
        corrupted: Predictions of corrupted validation data; None if there are none.
        target: Their classes.
    """
    if fitted >= 1:
        return fitted, ""
    if corrupted is None or target is None:
        return 1.0, (
            f"The temperature stays at 1, though {fitted:.3g} fits clean validation data: there is no "
            "corrupted data to try it on."
        )
    raw, target = samples(corrupted.raw, target)
    before = average(nll_per_sample(raw, target))
    after = average(nll_per_sample(with_temperature(raw, fitted), target))
    if after <= before:
        return fitted, ""
    safe = min(1.0, fit_temperature(raw, target))
    return safe, (
        f"The temperature is {safe:.3g}, though {fitted:.3g} fits clean validation data: on corrupted data "
        f"that raises the NLL from {before:.4g} to {after:.4g}."
    )
