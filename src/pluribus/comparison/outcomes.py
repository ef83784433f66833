"""Outcomes: what an ensemble said of every test sample, for pictures and for tests of chance.

Columns of `[samples]`, in one compressed file beside the records:

    column                                      of
    target                                      all
    label, confidence, nll, brier               classes
    mean, std, squared_error, absolute_error    numbers
    low, high, gaussian_nll, crps, position     numbers with a density: the ends of the 95 % interval, and the
                                                probability of less than the target

Of a dense prediction every position is a sample; of more than `MOST` samples as many are kept, evenly spaced.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from pluribus.data.scaling import unit
from pluribus.errors import CheckpointError
from pluribus.metrics.ood import ood_scores
from pluribus.metrics.regression import joint_nll_per_sample, ranked_distance
from pluribus.metrics.samples import samples
from pluribus.metrics.scoring import nll_per_sample, squared_distance
from pluribus.prediction import (
    CategoricalPrediction,
    ContinuousPrediction,
    DiscretePrediction,
    GaussianPrediction,
    Prediction,
)
from pluribus.untrusted import read_arrays
from pluribus.writing import replacing

Array = np.ndarray[Any, Any]

REMEDY = "Run the evaluation again."
MOST = 20_000
LEVEL = 0.95
GALLERY = 12
"""Pictures of either kind: those that the ensemble is least sure of, and those it is most sure of."""
SIDE = 96
"""Pixels of a picture's longer side at most."""


@dataclass(frozen=True, eq=False)
class Gallery:
    """Pictures that the ensemble is least sure of, least first, then those it is most sure of, most first.

    Args:
        index: Their numbers among the test samples, `[pictures]`.
        target: Their classes, `[pictures]`.
        label: The ensemble's answers, `[pictures]`.
        confidence: In the answer, `[pictures]`.
        pixels: Bytes, `[pictures, height, width, 1 or 3]`.
        votes: Each member's class, `[members, pictures]`.
        weights: Of the members, `[members]`.
        class_names: In order, or none.
    """

    index: Array
    target: Array
    label: Array
    confidence: Array
    pixels: Array
    votes: Array
    weights: Array
    class_names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What one run said of each test sample.

    Args:
        columns: By name, `[samples]`.
        scores: How strange each test sample looks, by criterion, `[samples]`.
        ood: The same of sets out of distribution, by set.
        gallery: Of images with one class each.
    """

    columns: dict[str, Array]
    scores: dict[str, Array]
    ood: dict[str, dict[str, Array]] = field(default_factory=dict)
    gallery: Gallery | None = None

    def save(self, file: Path) -> None:
        """Writes all as one `.npz` file, whole or not at all."""
        arrays = {f"columns/{name}": values for name, values in self.columns.items()}
        arrays |= {f"scores/{name}": values for name, values in self.scores.items()}
        for kind, scores in self.ood.items():
            arrays |= {f"ood/{name}/{kind}": values for name, values in scores.items()}
        if self.gallery is not None:
            names = {**vars(self.gallery), "class_names": np.array(self.gallery.class_names, dtype=np.str_)}
            arrays |= {f"gallery/{name}": values for name, values in names.items()}
        with replacing(file) as unfinished, unfinished.open("wb") as stream:
            np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, file: Path) -> "Outcomes":
        """What `save` wrote."""
        arrays = read_arrays(file, REMEDY)
        try:
            return cls._of_arrays(arrays)
        except (ValueError, TypeError, KeyError) as error:
            raise CheckpointError(f"{file} must hold outcomes, however: {error}. {REMEDY}") from error

    @classmethod
    def _of_arrays(cls, arrays: dict[str, Any]) -> "Outcomes":
        parts: dict[str, dict[str, Any]] = {"columns": {}, "scores": {}, "ood": {}, "gallery": {}}
        for key, values in arrays.items():
            part, name = key.split("/", 1)
            if part != "gallery" and (values.ndim != 1 or values.dtype.kind not in "biuf"):
                raise ValueError(f"{key} must be a column of numbers, got {values.dtype} {values.shape}")
            parts[part][name] = values
        if len({len(values) for values in parts["columns"].values()}) > 1:
            raise ValueError("all columns must have one length, got several")
        ood: dict[str, dict[str, Array]] = {}
        for key, values in parts.pop("ood").items():
            name, kind = key.split("/", 1)  # the name of a set may hold a slash
            ood.setdefault(kind, {})[name] = values
        gallery = parts.pop("gallery")
        if gallery:
            _check_gallery(gallery)
            gallery["class_names"] = tuple(str(name) for name in gallery["class_names"])
        return cls(**parts, ood=ood, gallery=Gallery(**gallery) if gallery else None)


def _check_gallery(arrays: Mapping[str, Array]) -> None:
    """Raise `ValueError` unless the arrays of a gallery have the shapes that `Gallery` names."""
    pictures = len(arrays["index"])
    for name in ("index", "target", "label", "confidence"):
        if arrays[name].shape != (pictures,) or arrays[name].dtype.kind not in "iuf":
            raise ValueError(f"gallery/{name} must be {pictures} numbers, got shape {arrays[name].shape}")
    pixels, votes = arrays["pixels"], arrays["votes"]
    if (
        pixels.ndim != 4
        or len(pixels) != pictures
        or pixels.shape[3] not in (1, 3)
        or pixels.dtype != np.uint8
    ):
        raise ValueError(f"gallery/pixels must be {pictures} pictures of bytes, got shape {pixels.shape}")
    if votes.shape != (len(arrays["weights"]), pictures) or votes.dtype.kind not in "iu":
        raise ValueError(f"gallery/votes must be whole numbers of {pictures} pictures, got {votes.shape}")
    if arrays["weights"].ndim != 1 or arrays["class_names"].dtype.kind != "U":
        raise ValueError("gallery/weights must be numbers and gallery/class_names texts")


def read_outcomes(prediction: Prediction, target: Tensor) -> Outcomes:
    """The columns and scores of a prediction on test data."""
    scores = stored_ood_scores(prediction)
    prediction, target = samples(prediction, target)
    if isinstance(prediction, DiscretePrediction):
        found = _of_classes(prediction, target)
    elif isinstance(prediction, ContinuousPrediction):
        found = _of_numbers(prediction, target)
    else:
        found = {"target": target}
    return Outcomes({name: _kept(values) for name, values in found.items()}, scores)


def stored_ood_scores(prediction: Prediction) -> dict[str, Array]:
    """Return the OOD scores of every criterion, `[samples]` each, thinned and cast for the file."""
    return {name: _kept(values) for name, values in ood_scores(prediction).items()}


def make_gallery(
    prediction: Prediction, target: Tensor, x: Tensor, class_names: tuple[str, ...] = ()
) -> Gallery | None:
    """The pictures that a prediction is least and most sure of; None where samples are no pictures or one.

    Args:
        prediction: Of classes, one for each sample.
        target: The right classes, `[batch]`.
        x: What the network took, as it lay in the files, `[batch, 1 or 3, height, width]`.
        class_names: In order, or none.
    """
    if not isinstance(prediction, CategoricalPrediction) or prediction.members.ndim != 3:
        return None
    if x.ndim != 4 or x.shape[1] not in (1, 3):
        return None
    order = prediction.entropy.argsort(descending=True, stable=True)
    each = min(GALLERY, len(order) // 2)
    if not each:
        return None
    index = torch.cat((order[:each], order.flip(0)[:each]))
    return Gallery(
        index.cpu().numpy(),
        target[index.to(target.device)].cpu().numpy().astype(np.int32),
        prediction.labels[index].cpu().numpy().astype(np.int32),
        prediction.confidence[index].detach().cpu().float().numpy(),
        _pixels(x[index.to(x.device)]),
        prediction.member_labels[:, index].cpu().numpy().astype(np.int32),
        prediction.weights.detach().cpu().float().numpy(),
        class_names,
    )


def _of_classes(prediction: DiscretePrediction, target: Tensor) -> Mapping[str, Tensor]:
    return {
        "target": target,
        "label": prediction.labels,
        "confidence": prediction.confidence,
        "nll": nll_per_sample(prediction, target),
        "brier": squared_distance(prediction, target),
    }


def _of_numbers(prediction: ContinuousPrediction, target: Tensor) -> Mapping[str, Tensor]:
    errors = prediction.mean - target
    found = {
        "target": target,
        "mean": prediction.mean,
        "std": prediction.std,
        "squared_error": errors.square(),
        "absolute_error": errors.abs(),
    }
    if isinstance(prediction, GaussianPrediction):
        low, high = prediction.interval(LEVEL)
        found |= {
            "low": low,
            "high": high,
            "gaussian_nll": joint_nll_per_sample(prediction, target),
            "crps": ranked_distance(prediction, target),
            "position": prediction.cdf(target),
        }
    return found


def _kept(values: Tensor) -> Array:
    values = values.detach().flatten().cpu()
    if len(values) > MOST:
        values = values[torch.linspace(0, len(values) - 1, MOST, dtype=torch.float64).long()]
    return (values.float() if values.is_floating_point() else values.int()).numpy()


def _pixels(images: Tensor) -> Array:
    """Images as bytes, channels last; what lies outside of 0 to 1 is stretched, each picture for itself."""
    images = unit(images.detach().cpu()).float()
    height, width = images.shape[-2:]
    shrink = max(height, width) / SIDE
    if shrink > 1:
        images = adaptive_avg_pool2d(images, (max(round(height / shrink), 1), max(round(width / shrink), 1)))
    if images.min() < -0.01 or images.max() > 1.01:
        low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
        images = (images - low) / (high - low).clamp(min=1e-12)
    pixels = images.clamp(0, 1).mul(255).round().byte().permute(0, 2, 3, 1).contiguous()
    return pixels.numpy()
