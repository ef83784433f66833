"""The pictures of lowest and highest certainty, found while predictions come batch by batch."""

from dataclasses import replace
from typing import final

import torch
from torch import Tensor

from pluribus.comparison.outcomes import GALLERY, Gallery, make_gallery
from pluribus.data.batch import Batch
from pluribus.data.scaling import Scaling
from pluribus.prediction import CategoricalPrediction, Prediction


@final
class Candidates:
    """Keep the pictures that may be shown: so many of each end, of all that came so far.

    Args:
        scaling: What the network's inputs went through, and pictures are brought back from.
    """

    def __init__(self, scaling: Scaling) -> None:
        self.scaling = scaling
        self.count = 0
        self.kept: tuple[CategoricalPrediction, Tensor, Tensor, Tensor] | None = None

    def add(self, batch: Batch, prediction: Prediction, target: Tensor | None) -> None:
        """Add a batch with its predictions and targets; whatever is no picture with one class is ignored."""
        index = torch.arange(self.count, self.count + len(batch))
        self.count += len(batch)
        single = isinstance(prediction, CategoricalPrediction) and prediction.members.ndim == 3
        if not single or target is None or not isinstance(batch.x, Tensor):
            return
        assert isinstance(prediction, CategoricalPrediction)
        x = batch.x
        if self.kept is not None:
            before, targets, pictures, numbers = self.kept
            if pictures.shape[1:] != x.shape[1:]:
                return
            prediction = CategoricalPrediction.concatenate([before, prediction])
            target, x = torch.cat((targets, target)), torch.cat((pictures, x))
            index = torch.cat((numbers, index))
        order = prediction.entropy.argsort(descending=True, stable=True)
        # In the order in which they came, so that ties are decided as if all were sorted at once.
        ends = torch.cat((order[:GALLERY], order.flip(0)[:GALLERY])).unique()  # type: ignore[no-untyped-call]
        self.kept = (prediction[ends], target[ends], x[ends], index[ends.cpu()])

    def gallery(self, class_names: tuple[str, ...]) -> Gallery | None:
        """Return the pictures, or None where there are none."""
        if self.kept is None:
            return None
        prediction, target, x, numbers = self.kept
        found = make_gallery(prediction, target, self.scaling.invert(x), class_names)
        if found is None:
            return None
        return replace(found, index=numbers.numpy()[found.index])
