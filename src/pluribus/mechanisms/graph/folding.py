"""Folding: a batch norm in eval mode becomes part of the layer before it.

A batch norm with stored statistics is affine in each channel, so that

    BN(W x + b) = s (W x + b - mean) + shift,    s = scale / sqrt(variance + eps)          (1)

is a layer with weights s W and bias s (b - mean) + shift, up to rounding. It holds where the norm alone
reads what the layer computes; finding such pairs is up to the caller.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Norm:
    """The numbers of a batch norm.

    Attributes:
        mean: Stored mean of each channel, `[channels]`.
        variance: Stored variance of each channel, `[channels]`.
        eps: Added to the variance.
        scale: Learnt factor of each channel; None is 1.
        shift: Learnt summand of each channel; None is 0.
    """

    mean: Tensor
    variance: Tensor
    eps: float
    scale: Tensor | None = None
    shift: Tensor | None = None


def fold_norm(weight: Tensor, bias: Tensor | None, norm: Norm) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a layer with the norm after it, Eq. (1).

    Args:
        weight: Of a linear layer or a convolution that is not transposed, `[channels, ...]`.
        bias: `[channels]`, or None.
        norm: The norm that reads what the layer computes.
    """
    bias_dtype = weight.dtype if bias is None else bias.dtype
    bias = torch.zeros_like(norm.mean) if bias is None else bias
    scale = torch.ones_like(norm.mean) if norm.scale is None else norm.scale
    shift = torch.zeros_like(norm.mean) if norm.shift is None else norm.shift
    inverse_std = torch.rsqrt(norm.variance + norm.eps)
    # Channels of the result are axis 0 of the weight; all of its other axes are summed over.
    by_channel = (scale * inverse_std).view(-1, *[1] * (weight.ndim - 1))
    folded_weight = weight * by_channel
    folded_bias = (bias - norm.mean) * inverse_std * scale + shift
    # The norm's numbers may have a higher precision; the layer keeps its own.
    return folded_weight.to(weight.dtype), folded_bias.to(bias_dtype)
