"""Images as the bytes that a page shows."""

from typing import Any

import numpy as np
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from pluribus.data.scaling import unit


def picture_bytes(images: Tensor, side: int) -> np.ndarray[Any, Any]:
    """Return images as bytes, `[images, height, width, channels]`, their longer side at most `side`."""
    images = unit(images.detach().cpu()).float()
    height, width = shown_size(images.shape[-2], images.shape[-1], side)
    if (height, width) != images.shape[-2:]:
        images = adaptive_avg_pool2d(images, (height, width))
    # Standardised inputs leave the range from 0 to 1. Each picture is stretched to it for itself.
    if images.min() < -0.01 or images.max() > 1.01:
        low = images.amin((1, 2, 3), keepdim=True)
        high = images.amax((1, 2, 3), keepdim=True)
        images = (images - low) / (high - low).clamp(min=1e-12)
    pixels = images.clamp(0, 1).mul(255).round().byte().permute(0, 2, 3, 1).contiguous()
    return pixels.numpy()


def shown_size(height: int, width: int, side: int) -> tuple[int, int]:
    """Return the size of an image whose longer side is at most `side`, in the same proportions."""
    shrink = max(height, width) / side
    if shrink <= 1:
        return height, width
    return max(round(height / shrink), 1), max(round(width / shrink), 1)
