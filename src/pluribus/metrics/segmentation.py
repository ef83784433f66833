"""Segmentation: how far the predicted regions and the true ones overlap.

Dice, "Measures of the amount of ecologic association between species", Ecology 26, 1945; Jaccard, "The
distribution of the flora in the alpine zone", New Phytologist 11, 1912. For every image and class

    Dice = 2 |A ∩ B| / (|A| + |B|),    IoU = |A ∩ B| / |A ∪ B|                    (1)

    symbol   here
    A        pixels so labelled
    B        pixels of the class

are averaged over the classes of an image, and then over images. Class 0 is the background, and does not
count. A class that neither the truth nor the prediction of an image has is left out of it. An image without
any class but the background, in both, does not count. Pixels whose target is -100 do not count.

Calibration of pixels needs no metric of its own: in `ece` and its like every pixel is a sample.
"""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pluribus.likelihood import IGNORED, class_indices
from pluribus.metrics.metric import Metric
from pluribus.metrics.samples import exact
from pluribus.prediction import DiscretePrediction

# Images whose masks are expanded over the classes at once: masks of all would take gigabytes.
AT_ONCE = 16


def dice(prediction: DiscretePrediction, target: Tensor) -> float:
    """Compute the Dice score of Eq. (1), in [0, 1]; NaN where no image counts."""
    overlap, sizes = region_sizes(prediction, target)
    return _mean_of_images(2 * overlap, sizes)


def iou(prediction: DiscretePrediction, target: Tensor) -> float:
    """Compute the intersection over union of Eq. (1), in [0, 1]; NaN where no image counts."""
    overlap, sizes = region_sizes(prediction, target)
    return _mean_of_images(overlap, sizes - overlap)


def dice_per_image(prediction: DiscretePrediction, target: Tensor) -> Tensor:
    """Compute the Dice score of every image, `[batch]`; NaN where it has no class but the background."""
    overlap, sizes = region_sizes(prediction, target)
    return _per_image(2 * overlap, sizes)


def region_sizes(prediction: DiscretePrediction, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return |A ∩ B| and |A| + |B| by image and class but the background, `[batch, classes - 1]` each."""
    logs = prediction.member_log_probabilities
    outcomes = logs.shape[2]
    truth = class_indices(target.to(logs.device), logs).flatten(1)
    labels = prediction.labels.flatten(1)
    overlaps, sizes = [], []
    for start in range(0, len(truth), AT_ONCE):
        own, given = truth[start : start + AT_ONCE], labels[start : start + AT_ONCE]
        counted = (own != IGNORED).unsqueeze(2)
        # An ignored target is no class; its pixel is masked, whatever stands there.
        right = one_hot(own.clamp(min=0), outcomes).bool() & counted
        said = one_hot(given, outcomes).bool() & counted
        overlaps.append((right & said).sum(1))
        sizes.append(right.sum(1) + said.sum(1))
    return exact(torch.cat(overlaps))[:, 1:], exact(torch.cat(sizes))[:, 1:]


def _mean_of_images(numerators: Tensor, denominators: Tensor) -> float:
    return _per_image(numerators, denominators).nanmean().item()


def _per_image(numerators: Tensor, denominators: Tensor) -> Tensor:
    """Average fractions `[batch, classes]` over the classes that an image has."""
    # A class that is nowhere in an image is 0 over 0, which is NaN.
    return (numerators / denominators).nanmean(1)


_row = partial(Metric, direction="higher", range=(0, 1), kinds=(DiscretePrediction,), dense=True)

ROWS = (
    _row(
        name="dice",
        function=dice,
        title="Dice",
        explanation="Overlap of predicted and true regions as a share of their mean size, background aside.",
        paper="Dice, Measures of the amount of ecologic association between species, Ecology 1945",
    ),
    _row(
        name="iou",
        function=iou,
        title="IoU",
        explanation="Overlap of predicted and true regions as a share of their union, background aside.",
        paper="Jaccard, The distribution of the flora in the alpine zone, New Phytologist 1912",
    ),
)
