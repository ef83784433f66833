"""Predictions of a batch position by position, some of which are kept."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pluribus.likelihood import Bernoulli, Categorical, Likelihood, fill_missing
from pluribus.metrics.samples import flat, present_numbers, samples
from pluribus.prediction import ContinuousPrediction, Prediction


@dataclass(frozen=True, eq=False)
class Part:
    """Predictions of one batch that are kept.

    Args:
        prediction: Of its samples, or of its positions.
        target: Their targets; None for data out of distribution.
        numbers: Numbers of its positions among all, `[positions]`; None before positions are dropped.
    """

    prediction: Prediction
    target: Tensor | None
    numbers: Tensor | None = None


def hard_targets(y: Tensor, likelihood: Likelihood) -> Tensor:
    """Return targets that metrics can count: the likeliest class or answer in place of probabilities."""
    if not y.is_floating_point():
        return y
    if isinstance(likelihood, Categorical):
        return y.argmax(1)
    return y.round() if isinstance(likelihood, Bernoulli) else y


def by_position(part: Part) -> Part:
    """Return a part with every position of its predictions as a sample."""
    prediction, target = part.prediction, part.target
    if part.numbers is not None:
        return part
    if isinstance(prediction, ContinuousPrediction):
        present = torch.ones(prediction.means.shape[1:], dtype=torch.bool, device=prediction.means.device)
        if target is not None:
            target = target.reshape(present.shape)
            known = fill_missing(target)[1]
            present = present if known is None else known
            target = target[present]
        return Part(present_numbers(prediction, present), target)
    if target is None:
        return Part(flat(prediction), None)
    return Part(*samples(prediction, target))


def thinned(part: Part, stride: int) -> Part:
    """Return the positions of a part whose numbers are multiples of the stride."""
    assert part.numbers is not None
    if stride == 1:
        return part
    mask = part.numbers % stride == 0
    there = mask.to(part.prediction.members.device)
    target = None if part.target is None else part.target[there]
    return Part(part.prediction[there], target, part.numbers[mask])
