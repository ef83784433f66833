"""Changes of images for augmentation: each takes a batch `[batch, channels, height, width]` and one number,
or a few, for every sample, and returns a batch of the same shape.

Pixels may have any scale: black and white are the darkest and the brightest value of the image itself. Where
these are 0 and 255, grey levels and colours change as they do by Pillow's functions of the same name.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

LEVELS = 256
"""Levels of grey of images with eight bits, in which two of the changes are defined."""
LUMINANCE = (0.299, 0.587, 0.114)
"""How much red, green and blue count in the grey of a pixel (ITU-R 601, as in Pillow)."""
CENTRE = 5.0
"""How much more the pixel itself counts than each of its eight neighbours, in Pillow's smoothing."""


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


def translate(images: Tensor, across: Tensor, along: Tensor) -> Tensor:
    """Move images by a share of their width and of their height; what enters is zero."""
    one, zero = torch.ones_like(across), torch.zeros_like(across)
    # Places go from -1 to 1, so that a whole side is 2; the pixel that is read lies the other way.
    rows = (one, zero, -2 * across), (zero, one, -2 * along)
    return _transform(images, torch.stack([torch.stack(row, 1) for row in rows], 1))


def brighten(images: Tensor, by: Tensor) -> Tensor:
    """Move pixels away from black by a share, or towards it, and keep them in the range of their image."""
    low, high = _bounds(images)
    return _blend(images, low, by).clamp(low, high)


def contrast(images: Tensor, by: Tensor) -> Tensor:
    """Move pixels away from the mean of their image by a share, or towards it, and keep them in the range."""
    low, high = _bounds(images)
    return _blend(images, _grey(images).mean((1, 2, 3), keepdim=True), by).clamp(low, high)


def colour(images: Tensor, by: Tensor) -> Tensor:
    """Move pixels away from their grey by a share, or towards it, and keep them in the range.

    Images that have not three channels have no colour, and stay as they are.
    """
    if images.shape[1] != len(LUMINANCE):
        return images
    low, high = _bounds(images)
    return _blend(images, _grey(images), by).clamp(low, high)


def sharpen(images: Tensor, by: Tensor) -> Tensor:
    """Move pixels away from a smooth version of their image by a share, or towards it; edges stay."""
    low, high = _bounds(images)
    kernel = images.new_ones(images.shape[1], 1, 3, 3)
    kernel[:, :, 1, 1] = CENTRE
    smooth = images.clone()
    if min(images.shape[-2:]) >= kernel.shape[-1]:
        inner = F.conv2d(images, kernel / (CENTRE + 8), groups=images.shape[1])
        smooth[..., 1:-1, 1:-1] = inner
    return _blend(images, smooth, by).clamp(low, high)


def posterise(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the first bits, `[batch]`, 0 to 8, of the eight bits of each pixel."""
    step = _column((LEVELS / 2 ** bits.to(torch.int64)).to(images))
    low, high = _bounds(images)
    kept = (_levels(images) / step).floor() * step
    # Pixels between two levels are as good as those of eight bits: all bits change nothing.
    return torch.where(_column(bits) == 8, images, _from_levels(kept, low, high))


def autocontrast(images: Tensor) -> Tensor:
    """Stretch each channel to the range of its image; a channel without contrast stays as it is."""
    low, high = _bounds(images)
    least, most = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    span = most - least
    stretched = low + (images - least) / torch.where(span > 0, span, torch.ones_like(span)) * (high - low)
    return torch.where(span > 0, stretched, images)


def equalise(images: Tensor) -> Tensor:
    """Make all levels of a channel about equally frequent; a channel of few levels may stay as it is."""
    low, high = _bounds(images)
    flat = _levels(images).to(torch.int64).flatten(2)
    counts = torch.zeros(*flat.shape[:2], LEVELS, dtype=torch.int64, device=images.device)
    counts.scatter_add_(2, flat, torch.ones_like(flat))
    brightest = counts.gather(2, flat.amax(2, keepdim=True))
    step = (flat.shape[2] - brightest) // (LEVELS - 1)
    before = counts.cumsum(2) - counts
    table = ((before + step // 2) // step.clamp(min=1)).clamp(max=LEVELS - 1)
    changed = _from_levels(table.gather(2, flat).view_as(images).to(images), low, high)
    return torch.where((step == 0).unsqueeze(3), images, changed)


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


def _blend(images: Tensor, other: Tensor, by: Tensor) -> Tensor:
    """Return pixels moved away from those of other images by the share `by`, `[batch]`."""
    return other + (images - other) * (1 + _column(by))


def _grey(images: Tensor) -> Tensor:
    """Return the grey of each pixel, `[batch, 1, height, width]`; a mean where channels are no colours."""
    if images.shape[1] != len(LUMINANCE):
        return images.mean(1, keepdim=True)
    return torch.einsum("bchw,c->bhw", images, images.new_tensor(LUMINANCE)).unsqueeze(1)


def _levels(images: Tensor) -> Tensor:
    """Return pixels as whole levels from 0 to 255, of an image whose darkest and brightest have these."""
    low, high = _bounds(images)
    span = torch.where(high > low, high - low, torch.ones_like(high))
    return ((images - low) / span * (LEVELS - 1)).round()


def _from_levels(levels: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return pixels of levels from 0 to 255 in a range."""
    return low + levels / (LEVELS - 1) * (high - low)


def _column(values: Tensor) -> Tensor:
    """Return one value for each image, `[batch, 1, 1, 1]`."""
    return values.view(-1, 1, 1, 1)
