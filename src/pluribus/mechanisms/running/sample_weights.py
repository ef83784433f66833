"""Weights of samples, or of the positions of dense targets, in a loss."""

import torch
from torch import Tensor

from pluribus.errors import InputError


def check_weights(weights: object, y: Tensor) -> None:
    """Raise unless these are weights of samples, `[batch]`, or of the positions of a dense target.

    Args:
        weights: Finite, at least 0.
        y: The targets, `[batch, ...]`; probabilities have an axis of classes, which weights lack.
    """
    shapes = [tuple(y.shape[:1]), tuple(y.shape)]
    if y.is_floating_point() and y.ndim > 1:
        shapes.append((len(y), *y.shape[2:]))
    found = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
    if not isinstance(weights, Tensor) or found not in shapes:
        raise InputError(
            f"weights must be a tensor for {len(y)} samples, or of the shape {shapes[1]} of the targets, "
            f"got {found}."
        )
    if not ((weights >= 0) & weights.isfinite()).all():
        raise InputError(f"weights must be finite and at least 0, got {weights.min():g} as the least.")


def weighted_mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean over the samples, `[rows]`: Σ w l / Σ w; 0 where no sample has a weight.

    Args:
        losses: `[rows, batch]`, or `[rows]` where they are means already.
        weights: `[batch]`, or `[batch, ...]` of positions, whose mean is the weight of a sample.
    """
    losses = losses.reshape(len(losses), -1)
    if weights is None:
        return losses.mean(1)
    # A sample weighs what its positions weigh on average, so that the sum runs over all positions alike.
    each = (weights.flatten(1).mean(1) if weights.ndim > 1 else weights).to(losses.dtype)
    return (losses * each).sum(1) / each.sum().clamp(min=torch.finfo(losses.dtype).tiny)
