"""Changes of images for augmentation: each takes a batch `[batch, channels, height, width]` and one number,
or a few, for every sample, and returns a batch of the same shape.

Pixels may have any scale: bounds, means and mid-grey are those of the image itself.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def flip(images: Tensor, flipped: Tensor) -> Tensor:
    """Mirror the images where `flipped`, `[batch]`, is True, left to right."""
    return torch.where(_column(flipped), images.flip(-1), images)


def shift(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Move images by whole pixels, `[batch]` each; what enters is zero. This is a crop of a padded image."""
    height, width = images.shape[-2:]
    rows = torch.arange(height, device=images.device) - down[:, None]
    columns = torch.arange(width, device=images.device) - right[:, None]
    inside_rows, inside_columns = (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
    batch = torch.arange(len(images), device=images.device)[:, None, None]
    moved = images.movedim(1, -1)[
        batch, rows.clamp(0, height - 1)[:, :, None], columns.clamp(0, width - 1)[:, None]
    ]
    inside = inside_rows[:, :, None] & inside_columns[:, None]
    return (moved * inside[..., None]).movedim(-1, 1)


def rotate(images: Tensor, degrees: Tensor) -> Tensor:
    """Turn images about their centre, counter-clockwise."""
    angle = degrees * (math.pi / 180)
    zero = torch.zeros_like(angle)
    # Pixels of images that are not square turn by the same angle.
    ratio = images.shape[-2] / images.shape[-1]
    rows = (angle.cos(), -angle.sin() * ratio, zero), (angle.sin() / ratio, angle.cos(), zero)
    return _transform(images, torch.stack([torch.stack(row, 1) for row in rows], 1))


def shear(images: Tensor, across: Tensor, along: Tensor) -> Tensor:
    """Slant images along their rows and along their columns."""
    one, zero = torch.ones_like(across), torch.zeros_like(across)
    rows = (one, across, zero), (along, one, zero)
    return _transform(images, torch.stack([torch.stack(row, 1) for row in rows], 1))


def brighten(images: Tensor, by: Tensor) -> Tensor:
    """Add a share of the range of each image to all of its pixels, and keep them in the range."""
    low, high = _bounds(images)
    return (images + _column(by) * (high - low)).clamp(low, high)


def contrast(images: Tensor, by: Tensor) -> Tensor:
    """Move pixels away from the mean of their image by a share, or towards it, and keep them in the range."""
    low, high = _bounds(images)
    mean = images.mean((1, 2, 3), keepdim=True)
    return (mean + (images - mean) * (1 + _column(by))).clamp(low, high)


def solarise(images: Tensor, share: Tensor) -> Tensor:
    """Invert the brightest pixels: those in the top `share` of the range of their image."""
    low, high = _bounds(images)
    bright = images > high - _column(share) * (high - low)
    return torch.where(bright, low + high - images, images)


def _transform(images: Tensor, matrices: Tensor) -> Tensor:
    """Return images read at places that matrices `[batch, 2, 3]` map pixels to; outside there is zero."""
    grid = F.affine_grid(matrices, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="zeros", align_corners=False)


def _bounds(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least and the greatest pixel of each image."""
    return images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)


def _column(values: Tensor) -> Tensor:
    """Return one value for each image, `[batch, 1, 1, 1]`."""
    return values.view(-1, 1, 1, 1)
