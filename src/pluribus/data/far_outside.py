"""Inputs far outside of the training inputs: mostly those that were scaled already, or have other units."""

import torch
from torch import Tensor

from pluribus.data.scaling import unit
from pluribus.data.signature import Signature


def far_outside(raw: Tensor, signature: Signature) -> str:
    """Return a warning where inputs lie beyond the training inputs by more than their range; else nothing."""
    if not len(signature.low):
        return ""
    x = signature.prepare(raw)
    # Features and channels lie on axis 1.
    shape = (1, -1, *[1] * (x.ndim - 2))
    low = signature.low.to(x).reshape(shape)
    high = signature.high.to(x).reshape(shape)
    odd = (x > 2 * high - low) | (x < 2 * low - high)
    if not odd.any():
        return ""
    count, column = int(odd.flatten(1).any(1).sum()), int(odd.nonzero()[0, 1])
    name = f"feature {column}"
    if x.ndim == 4:
        name = f"channel {column}"
    if signature.feature_names:
        name = repr(signature.feature_names[column])
    bounds = torch.cat((low, high)).expand(2, *x.shape[1:])
    here = _range(unit(raw)[:, column])
    there = _range(signature.scaling.invert(bounds)[:, column])
    return (
        f"inputs must be raw, as they were before scaling, got {count} of {len(x)} that lie far outside of "
        f"the training inputs: {name} ranges from {here}, in training from {there}."
    )


def _range(values: Tensor) -> str:
    """Return the least and the greatest value as text."""
    return f"{values.min():.4g} to {values.max():.4g}"
