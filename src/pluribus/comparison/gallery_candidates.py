"""The pictures and maps of lowest and highest certainty, found while predictions come batch by batch."""

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from pluribus.comparison.maps import SHOWN, Maps, make_maps
from pluribus.comparison.outcomes import GALLERY, Gallery, make_gallery
from pluribus.data.batch import Batch
from pluribus.data.scaling import Scaling
from pluribus.metrics.metric import is_dense
from pluribus.prediction import CategoricalPrediction, DiscretePrediction, Prediction


@dataclass(frozen=True, eq=False)
class Kept:
    """Samples that may be shown, in the order in which they came.

    Args:
        prediction: Of these samples.
        target: Their targets.
        x: Their inputs.
        numbers: Their numbers among all samples.
    """

    prediction: DiscretePrediction
    target: Tensor
    x: Tensor
    numbers: Tensor


@final
class Candidates:
    """Keep the pictures that may be shown: so many of each end, of all that came so far.

    Args:
        scaling: What the network's inputs went through, and pictures are brought back from.
    """

    def __init__(self, scaling: Scaling) -> None:
        self.scaling = scaling
        self.count = 0
        self.kept: Kept | None = None

    def add(self, batch: Batch, prediction: Prediction, target: Tensor | None) -> None:
        """Add a batch with its predictions and targets; whatever is no picture with classes is ignored."""
        numbers = torch.arange(self.count, self.count + len(batch))
        self.count += len(batch)
        x = batch.x
        if target is None or not isinstance(x, Tensor) or x.ndim != 4:
            return
        single = isinstance(prediction, CategoricalPrediction) and prediction.members.ndim == 3
        if not isinstance(prediction, DiscretePrediction) or not (single or is_dense(prediction)):
            return
        found: Kept | None = Kept(prediction, target, x, numbers)
        if self.kept is not None:
            found = _joined(self.kept, Kept(prediction, target, x, numbers))
        if found is not None:
            self.kept = _ends(found, GALLERY if single else SHOWN)

    def gallery(self, class_names: tuple[str, ...]) -> Gallery | None:
        """Return the pictures of samples with one class each, or None where there are none."""
        if self.kept is None:
            return None
        pictures = self.scaling.invert(self.kept.x)
        found = make_gallery(self.kept.prediction, self.kept.target, pictures, class_names)
        return None if found is None else replace(found, index=self.kept.numbers.numpy()[found.index])

    def maps(self) -> Maps | None:
        """Return the maps of images with a class for each pixel, or None where there are none."""
        if self.kept is None:
            return None
        found = make_maps(self.kept.prediction, self.kept.target, self.scaling.invert(self.kept.x))
        return None if found is None else replace(found, index=self.kept.numbers.numpy()[found.index])


def _joined(before: Kept, now: Kept) -> Kept | None:
    """Return both as one; None where pictures have another size, which cannot be shown together."""
    same = before.x.shape[1:] == now.x.shape[1:]
    if not same or before.prediction.members.shape[2:] != now.prediction.members.shape[2:]:
        return None
    return Kept(
        type(before.prediction).concatenate([before.prediction, now.prediction]),
        torch.cat((before.target, now.target)),
        torch.cat((before.x, now.x)),
        torch.cat((before.numbers, now.numbers)),
    )


def _ends(kept: Kept, each: int) -> Kept:
    """Return the least and the most certain samples, in the order in which they came.

    That order decides ties as if all samples were sorted at once.
    """
    entropy = kept.prediction.entropy
    entropy = entropy.flatten(1).mean(1) if entropy.ndim > 1 else entropy
    order = entropy.argsort(descending=True, stable=True)
    ends = torch.cat((order[:each], order.flip(0)[:each])).unique()  # type: ignore[no-untyped-call]
    index = ends.cpu()
    return Kept(kept.prediction[ends], kept.target[ends], kept.x[ends], kept.numbers[index])
