"""Fit a whole calibration: one half of the validation data for what is fitted, the other for quantiles.

    first half     weights of the members, on request; temperature or scale of the variance;
                   choice and parameters of the score
    second half    quantile of sets or intervals; threshold of the score

The second half has no part in the first, so that its scores are exchangeable with those of new samples.

Intervals of numbers with a model of noise are widened by q standard deviations, with q the conformal quantile
of max(low − y, y − high) / σ. Without a model of noise they are mean ± q, with q the quantile of |y − μ|.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from pluribus.calibration.altered import altered
from pluribus.calibration.choice import FEWEST, fit_score, groups_of, rate_scores, usual_score
from pluribus.calibration.conformal import conformal_quantile
from pluribus.calibration.corrupted import corrupted_images
from pluribus.calibration.member_weights import fit_weights
from pluribus.calibration.temperature import fit_temperature, safe_temperature
from pluribus.calibration.variance import safe_scale, variance_scale
from pluribus.calibration_record import Calibration, thinned
from pluribus.data.scaling import Scaling
from pluribus.errors import InputError
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.metrics.samples import samples
from pluribus.prediction import (
    ContinuousPrediction,
    DiscretePrediction,
    GaussianPrediction,
    PointPrediction,
    Prediction,
)

MOST_ALTERED = 1000
"""Samples that are altered or corrupted: each is run six times and more."""
SEED = 0
LEAST_SAMPLES = 4

Predict = Callable[[Inputs], Prediction]


@dataclass(frozen=True)
class Validation:
    """Data to calibrate by.

    Attributes:
        inputs: All inputs.
        target: Their targets, `[batch, ...]`.
        scaling: What images went through before they became inputs; None if unknown.
    """

    inputs: Inputs
    target: Tensor
    scaling: Scaling | None = None

    def take(self, index: Tensor) -> "Validation":
        """Return some of the samples."""
        device = next(self.inputs.tensors()).device
        return Validation(
            self.inputs.take(index.to(device)), self.target[index.to(self.target.device)], self.scaling
        )


def fit_calibration(
    predict: Predict,
    data: Validation,
    level: float,
    false_alarm: float,
    shifted: Validation | None,
    auto: bool,
    weigh: bool = False,
) -> Calibration:
    """Return the calibration of an ensemble.

    Args:
        predict: Returns raw predictions of inputs.
        data: Validation data, at least four samples.
        level: Of sets or intervals, in (0, 1).
        false_alarm: Share of usual samples that are flagged, in (0, 1).
        shifted: Corrupted validation data to try a temperature or a scale below 1 on.
        auto: Corrupt the validation data, if it is images, where no shifted data is given.
        weigh: Fit how much each member counts, before all else.
    """
    count = len(data.target)
    if count < LEAST_SAMPLES:
        raise InputError(
            f"calibrate needs at least {LEAST_SAMPLES} samples, got {count}. Add validation data."
        )
    # Shuffled: files are often sorted by class.
    order = torch.randperm(count, generator=Generator().manual_seed(SEED))
    first, second = data.take(order[: count // 2]), data.take(order[count // 2 :])
    fitted = predict(first.inputs)
    weights = fit_weights(fitted, first.target) if weigh else None
    if weights is not None:
        predict = _reweighted(predict, weights)
        fitted = fitted.weighted(weights)
    found = _spread(predict, first, fitted, shifted, auto)
    score = _score(predict, first, fitted)
    found = replace(
        found,
        score=score.score,
        means=score.means,
        whitening=score.whitening,
        aurocs=score.aurocs,
        level=level,
        false_alarm=false_alarm,
        samples=count,
        weights=weights,
    )
    held_out = predict(second.inputs)
    return _with_quantiles(found, held_out, second.target)


def _reweighted(predict: Predict, weights: Tensor) -> Predict:
    """Return a function that predicts with other weights of the members."""
    return lambda inputs: predict(inputs).weighted(weights)


def _spread(
    predict: Predict, first: Validation, fitted: Prediction, shifted: Validation | None, auto: bool
) -> Calibration:
    """Return the temperature, or the scale of the variance."""
    if isinstance(fitted, GaussianPrediction):
        scale, note = variance_scale(fitted, first.target), ""
        if scale < 1 and (tried := _tried(first, shifted, auto)) is not None:
            moved = predict(tried.inputs)
            assert isinstance(moved, GaussianPrediction)
            scale, note = safe_scale(scale, moved, tried.target)
        return Calibration(variance_scale=scale, notes=(note,) if note else ())
    if not isinstance(fitted, DiscretePrediction):
        return Calibration()
    temperature = fit_temperature(fitted, first.target)
    corrupted: DiscretePrediction | None = None
    target = None
    if temperature < 1 and (tried := _tried(first, shifted, auto)) is not None:
        moved = predict(tried.inputs)
        assert isinstance(moved, DiscretePrediction)
        corrupted, target = moved, tried.target
    temperature, note = safe_temperature(temperature, corrupted, target)
    return Calibration(temperature=temperature, notes=(note,) if note else ())


def _tried(first: Validation, shifted: Validation | None, auto: bool) -> Validation | None:
    """Return the data on which sharper predictions are tried; None if there is none."""
    return _corrupted(first) if shifted is None and auto else shifted


def _corrupted(first: Validation) -> Validation | None:
    """Return validation images with common corruptions; None if inputs are no images."""
    x = _only_tensor(first.inputs)
    if x is None:
        return None
    x, target = x[:MOST_ALTERED], first.target[:MOST_ALTERED]
    sets = corrupted_images(x, first.scaling)
    if not sets:
        return None
    return Validation(_with_tensor(first.inputs, torch.cat(sets)), torch.cat([target] * len(sets)))


def _score(predict: Predict, first: Validation, fitted: Prediction) -> Calibration:
    """Return the chosen score with its parameters, and how all scores did."""
    classes = groups_of(fitted, first.target)
    x = _only_tensor(first.inputs)
    strange: dict[str, Prediction] = {}
    if x is not None and len(x) >= FEWEST:
        for name, changed in altered(x[:MOST_ALTERED]):
            strange[name] = predict(_with_tensor(first.inputs, changed))
    if not strange:
        return fit_score(usual_score(fitted), fitted, classes)
    part = slice(0, MOST_ALTERED)
    aurocs = rate_scores(fitted[part], classes[part], strange)
    # The first of equal ones, in the order of the table of scores.
    best = max(aurocs, key=lambda name: aurocs[name])
    return replace(fit_score(best, fitted, classes), aurocs=aurocs)


def _with_quantiles(found: Calibration, held_out: Prediction, target: Tensor) -> Calibration:
    """Return the calibration with its quantile and its threshold, by the second half."""
    assert found.level is not None
    assert found.false_alarm is not None
    scores = held_out.score(found.score, found)
    threshold = conformal_quantile(scores, 1 - found.false_alarm)
    misses = _misses(held_out, target, found)
    quantile = conformal_quantile(misses, found.level, len(target))
    notes = list(found.notes)
    if math.inf in (threshold, quantile):
        notes.append(
            f"{len(target)} samples are too few for a level of {found.level:g} or false alarms of "
            f"{found.false_alarm:g}: sets hold everything, or nothing is flagged."
        )
    return replace(
        found, quantile=quantile, threshold=threshold, reference=thinned(scores), notes=tuple(notes)
    )


def _misses(prediction: Prediction, target: Tensor, found: Calibration) -> Tensor:
    """Return how far each truth is from the centre of its set or interval: the conformal scores."""
    prediction, target = samples(prediction.calibrated(found), target)
    if isinstance(prediction, DiscretePrediction):
        return 1 - prediction.log_probabilities.exp().gather(1, target.unsqueeze(1)).squeeze(1)
    assert isinstance(prediction, ContinuousPrediction)
    if isinstance(prediction, PointPrediction):
        return (target - prediction.mean).abs()
    assert found.level is not None
    low, high = prediction.interval(found.level)
    return torch.maximum(low - target, target - high) / prediction.std


def _only_tensor(inputs: Inputs) -> Tensor | None:
    """Return the tensor of inputs that have one; None if there are several."""
    tensors = list(inputs.tensors())
    return tensors[0] if len(tensors) == 1 else None


def _with_tensor(inputs: Inputs, x: Tensor) -> Inputs:
    return inputs.each(lambda _: x)
