"""Common corruptions of images, to measure a network under a shift of its data.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations",
ICLR 2019.

Fifteen kinds of corruption and four extra ones, each at five severities, with the constants of CIFAR-10-C for
images up to 32 pixels, of Tiny-ImageNet-C up to 64 and of ImageNet-C above (the shorter side counts).

Deviations:
- Frost is generated, with the colours and contrasts of the photographs that the published data used.
- Values are not rounded to 8 bits, except where JPEG does.
- Motion blur that reaches beyond the image repeats its edge; the reference loses these taps and darkens.
- Sizes other than the published 32, 64 and 224 keep lengths in pixels, except in `elastic_transform` and
  `frost`, where they grow with the image.
- Grey images stay grey: what needs colour (frost, spatter, saturate) is computed on RGB and turned back
  to grey; noise is drawn once, not once per colour.
"""

import math

import torch
from torch import Tensor

from pluribus.data.corruption_kinds import FUNCTIONS, TINTED
from pluribus.data.corruption_severities import constants
from pluribus.data.image_filters import luma
from pluribus.data.streams import Streams
from pluribus.errors import InputError, SettingError
from pluribus.ranges import check, invalid, nearest

KINDS = tuple(FUNCTIONS)[:15]
EXTRA_KINDS = tuple(FUNCTIONS)[15:]

LEAST_SIDE = 8
# Bounds the memory; samples do not depend on one another, so that the outputs do not depend on it.
VALUES_AT_ONCE = 2**20


def corrupt(images: Tensor, kind: str, severity: int, seed: int = 0, first: int = 0) -> Tensor:
    """Return images with one kind of corruption.

    The corruption of a sample depends on `seed`, `kind`, `severity` and its number in the data set alone,
    not on the batch it comes in nor on the device.

    Args:
        images: `[batch, channels, height, width]` floats in [0, 1], before normalisation; 1 channel is grey,
            3 are RGB; 8 pixels or more to a side.
        kind: One of `KINDS` or `EXTRA_KINDS`.
        severity: 1 (mild) to 5 (severe).
        seed: Seed of all that is random.
        first: Number of the first sample in its data set, for data corrupted in batches.

    Returns:
        Images in [0, 1] of the same shape, dtype and device.

    Example:
        >>> corrupt(torch.full((2, 1, 28, 28), 0.5), "brightness", severity=5)[0, 0, 0, 0]
        tensor(0.8000)
    """
    check_settings(kind, severity)
    check("seed", seed, int, at_least=0, at_most=math.inf)
    check("first", first, int, at_least=0)
    check_images(images)
    if len(images) == 0:
        return images.clone()
    count = max(1, VALUES_AT_ONCE // images[0].numel())
    parts = []
    for start in range(0, len(images), count):
        part = images[start : start + count].detach()
        streams = Streams(f"{seed}/{kind}/{severity}/{first + start + i}" for i in range(len(part)))
        parts.append(corrupted(part, kind, severity, streams))
    return torch.cat(parts)


def corrupted(images: Tensor, kind: str, severity: int, streams: Streams) -> Tensor:
    """Return corrupted images, of as many at a time as memory allows."""
    # Filters and random numbers of half precision would lose more than the corruption adds.
    values = images.float() if images.dtype.itemsize < 4 else images
    tinted = kind in TINTED and images.shape[1] == 1
    if tinted:
        values = values.expand(-1, 3, -1, -1)
    strengths = constants(kind, severity, min(images.shape[2:]))
    values = FUNCTIONS[kind](values, streams, *strengths).clamp(0, 1)
    if tinted:
        values = luma(values)
    return values.to(images.dtype)


def check_settings(kind: str, severity: int) -> None:
    """Raise for an unknown kind or an impossible severity."""
    if kind not in FUNCTIONS:
        raise SettingError(
            f"kind must be one of {', '.join(FUNCTIONS)}, got {kind!r}." + nearest(str(kind), FUNCTIONS)
        )
    if type(severity) is not int or not 1 <= severity <= 5:
        raise invalid("severity", "a whole number from 1 to 5", severity)


def check_images(images: Tensor) -> None:
    """Raise for anything but a batch of grey or RGB images in [0, 1]."""
    tensor = isinstance(images, Tensor)
    if not tensor or images.ndim != 4 or images.shape[1] not in (1, 3):
        came = f"shape {list(images.shape)}" if tensor else f"a {type(images).__name__}"
        raise InputError(
            f"images must be a tensor [batch, channels, height, width] of 1 or 3 channels, got {came}. "
            "Reshape it."
        )
    if min(images.shape[2:]) < LEAST_SIDE:
        raise InputError(
            f"images must be at least {LEAST_SIDE} pixels high and wide, "
            f"got {images.shape[2]} × {images.shape[3]}. Enlarge them."
        )
    if not images.is_floating_point():
        raise InputError(f"images must be floats in [0, 1], got {images.dtype}. Divide bytes by 255.")
    if not ((images >= 0) & (images <= 1)).all():
        raise InputError(
            "images must lie in [0, 1], got numbers from "
            f"{images.min():g} to {images.max():g}. Corrupt images before they are normalised."
        )
