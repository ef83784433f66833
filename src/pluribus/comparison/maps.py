"""Maps: test images of a segmentation with the truth, the prediction and where it is uncertain."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, interpolate

from pluribus.comparison.picture_bytes import picture_bytes, shown_size
from pluribus.likelihood import IGNORED, class_indices
from pluribus.metrics.metric import is_dense
from pluribus.metrics.segmentation import dice_per_image
from pluribus.prediction import DiscretePrediction, Prediction

Array = np.ndarray[Any, Any]

SHOWN = 4
"""Images of each kind: the least certain and the most certain."""
SIDE = 128
"""Most pixels of the longer side of an image."""
NO_CLASS = 255
"""Stands for the class of a pixel that does not count, and for all classes above 254."""


@dataclass(frozen=True, eq=False)
class Maps:
    """Test images of low certainty, lowest first, followed by those of high certainty, highest first.

    Args:
        index: Their numbers among the test samples, `[images]`.
        pixels: Bytes, `[images, height, width, 1 or 3]`.
        truth: The class of each pixel, bytes, `[images, height, width]`.
        label: The predicted class of each pixel, bytes, `[images, height, width]`.
        entropy: Uncertainty of each pixel, bytes, from 0 to the logarithm of the number of classes.
        dice: Dice score of each image, `[images]`; NaN where it has no class but the background.
        mean_entropy: Mean entropy of each image in nats, `[images]`.
    """

    index: Array
    pixels: Array
    truth: Array
    label: Array
    entropy: Array
    dice: Array
    mean_entropy: Array


def make_maps(prediction: Prediction, target: Tensor, x: Tensor) -> Maps | None:
    """Return the maps of the images of lowest and highest certainty; None unless there are at least two.

    Args:
        prediction: A class for each pixel.
        target: The right classes, `[batch, height, width]`.
        x: Inputs before scaling, `[batch, channels, height, width]`.
    """
    if not is_dense(prediction) or x.ndim != 4 or len(x) < 2:
        return None
    assert isinstance(prediction, DiscretePrediction)
    height, width = prediction.entropy.shape[-2:]
    # Volumes and several masks for one image have more axes, which a page cannot show.
    if prediction.entropy[0].numel() != height * width:
        return None
    means = prediction.entropy.flatten(1).mean(1)
    order = means.argsort(descending=True, stable=True)
    each = min(SHOWN, len(order) // 2)
    index = torch.cat((order[:each], order.flip(0)[:each]))
    some, truth = prediction[index], target[index.to(target.device)]
    outcomes = some.member_log_probabilities.shape[2]
    classes = class_indices(truth.to(index.device), some.member_log_probabilities)
    images = x[index.to(x.device)]
    # Of two channels, or of more than three, the first is shown in grey.
    if images.shape[1] != 3:
        images = images[:, :1]
    size = shown_size(height, width, SIDE)
    return Maps(
        index=index.cpu().numpy(),
        pixels=picture_bytes(images, SIDE),
        truth=_classes(torch.where(classes == IGNORED, NO_CLASS, classes), (height, width), size),
        label=_classes(some.labels, (height, width), size),
        entropy=_levels(some.entropy / math.log(outcomes), (height, width), size),
        dice=dice_per_image(some, truth).float().numpy(),
        mean_entropy=means[index].detach().cpu().float().numpy(),
    )


def read_maps(arrays: Mapping[str, Array]) -> Maps:
    """Return maps read from a file; raise `ValueError` unless arrays have the shapes that `Maps` names."""
    names = [one.name for one in fields(Maps)]
    if sorted(arrays) != sorted(names):
        raise ValueError(f"maps must have {', '.join(names)}, got {', '.join(arrays)}")
    images = len(arrays["index"])
    for name in ("index", "dice", "mean_entropy"):
        _check(name, arrays[name], arrays[name].shape == (images,), "iuf")
    pixels = arrays["pixels"]
    _check("pixels", pixels, pixels.ndim == 4 and pixels.shape[3] in (1, 3), "u")
    _check("pixels", pixels, len(pixels) == images and pixels.dtype == np.uint8, "u")
    for name in ("truth", "label", "entropy"):
        values = arrays[name]
        _check(name, values, values.ndim == 3 and len(values) == images and values.dtype == np.uint8, "u")
    return Maps(**arrays)


def _check(name: str, values: Array, fits: bool, kinds: str) -> None:
    if not fits or values.dtype.kind not in kinds:
        raise ValueError(
            f"maps/{name} must have the shape and type of a map, got {values.dtype} {values.shape}"
        )


def _classes(values: Tensor, full: tuple[int, int], size: tuple[int, int]) -> Array:
    """Return classes as bytes, shrunk by taking the nearest pixel: a mean of classes is no class."""
    images = values.reshape(-1, 1, *full).clamp(max=NO_CLASS).float()
    return interpolate(images, size, mode="nearest")[:, 0].byte().cpu().numpy()


def _levels(values: Tensor, full: tuple[int, int], size: tuple[int, int]) -> Array:
    """Return shares in [0, 1] as bytes, shrunk by averaging."""
    images = adaptive_avg_pool2d(values.detach().reshape(-1, 1, *full).float(), size)
    return images[:, 0].clamp(0, 1).mul(255).round().byte().cpu().numpy()
