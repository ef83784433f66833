"""Every position of a prediction as a sample of its own: the one place that flattens what metrics read."""

from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.likelihood import IGNORED, MISSING, check_finite, class_indices, fill_missing
from pluribus.prediction import (
    BernoulliPrediction,
    CategoricalPrediction,
    ContinuousPrediction,
    DiscretePrediction,
    GaussianPrediction,
    Prediction,
    align,
)

P = TypeVar("P", bound=Prediction)
C = TypeVar("C", bound=ContinuousPrediction)


def flat(prediction: P) -> P:
    """Read each pixel, token or label of a discrete prediction as a sample of its own.

    Its member log-probabilities become `[members, samples, outcomes]`, its summaries `[samples]`.
    Numbers, which have no axis of outcomes to move, stay as they are; so does what is flat already.
    """
    if not isinstance(prediction, DiscretePrediction) or prediction.member_log_probabilities.ndim == 3:
        return prediction
    classes = isinstance(prediction, CategoricalPrediction)
    # Logits of yes and no have no axis of outcomes.
    members = _outcomes_last(prediction.members) if classes else prediction.members.flatten(1)
    return replace(prediction, members=members)


def samples(prediction: P, target: Tensor) -> tuple[P, Tensor]:
    """Return a prediction and its target, checked, position by position.

    Args:
        prediction: Of any kind.
        target: Class indices `[batch, ...]`, where -100 leaves out a position of a dense target; no and
            yes as 0 and 1 for a Bernoulli prediction; finite numbers for a continuous one. Where a sample has
            several, NaN is a missing one; each number that is there is then a sample of its own.

    Returns:
        The prediction after `flat`, and its target of `[samples]`; numbers keep `[batch, ...]`. Both are
        returned as they came if there is nothing to change, with the summaries computed so far.

    """
    target = target.to(prediction.members.device)
    if isinstance(prediction, DiscretePrediction):
        target = _mark_ignored(prediction, target)
        _check_whole(prediction, target)
        target = class_indices(target, prediction.member_log_probabilities).flatten()
        prediction, counted = flat(prediction), target != IGNORED
        if not counted.all():
            prediction, target = prediction[counted], target[counted]
    elif isinstance(prediction, ContinuousPrediction):
        target = align(target, prediction.means.shape[1:]).to(prediction.means.dtype)
        filled, present = fill_missing(target)
        check_finite("targets", filled, MISSING)
        if present is not None:
            prediction, target = present_numbers(prediction, present), target[present]
    if not target.numel():
        raise InputError(
            "metrics need at least 1 sample with a target, got none. "
            "Predict on some data, and leave some of its positions to count."
        )
    return prediction, target


def exact(values: Tensor) -> Tensor:
    """Return values in double precision, off the graph."""
    # On the CPU, because some devices have no such floats.
    return values.detach().to("cpu", torch.float64)


def average(values: Tensor) -> float:
    """Return the mean of all values, summed in double precision."""
    return exact(values).mean().item()


def _mark_ignored(prediction: DiscretePrediction, target: Tensor) -> Tensor:
    """Return labels of yes and no with -100 in place of missing ones."""
    if not isinstance(prediction, BernoulliPrediction):
        return target
    filled, present = fill_missing(target)
    return target if present is None else filled.masked_fill(~present, IGNORED)


def present_numbers(prediction: C, present: Tensor) -> C:
    """Return the numbers with a target, each as a sample of its own, `[members, samples]`."""
    changed: dict[str, Any] = {"members": prediction.members, "means": prediction.means}
    if isinstance(prediction, GaussianPrediction):
        # The raw outputs hold means and variances, which no metric reads.
        changed |= {"members": prediction.means, "variances": prediction.variances}
    kept: dict[str, Any] = {name: values[:, present] for name, values in changed.items()}
    return replace(prediction, **kept)


def _outcomes_last(values: Tensor) -> Tensor:
    """Turn `[members, batch, outcomes, ...]` into `[members, samples, outcomes]`."""
    return values.movedim(2, -1).flatten(1, -2)


def _check_whole(prediction: DiscretePrediction, target: Tensor) -> None:
    """Raise where a target is a probability: metrics count right answers."""
    if not target.is_floating_point():
        return
    if not isinstance(prediction, BernoulliPrediction):
        raise InputError(
            f"metrics compare with class indices, got {target.dtype} of shape {tuple(target.shape)}. "
            "Use target.argmax(1) on probabilities, target.long() on indices."
        )
    parts = target != target.round()
    if parts.any():
        raise InputError(
            f"metrics compare with no and yes, 0 and 1, got {target[parts][0].item():g}. "
            "Use target.round() for the likelier answer."
        )
