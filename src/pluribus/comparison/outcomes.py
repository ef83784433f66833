"""Outcomes: the predictions of an ensemble for every test sample, for figures and significance tests.

Columns of `[samples]`, in one compressed file beside the records:

    column                                      of
    target                                      all
    label, confidence, nll, brier               classes
    positive                                    two classes: the probability of class 1
    cost                                        classes, where costs are given: that of the decision
    mean, std, squared_error, absolute_error    numbers
    low, high, gaussian_nll, crps, position     numbers with a density: the ends of the 95 % interval, and the
                                                probability of less than the target

In a dense prediction every position is a sample. At most `MOST` samples are kept, evenly spaced.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pluribus.comparison.maps import Maps, read_maps
from pluribus.comparison.picture_bytes import picture_bytes
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
"""Pictures of each kind: the least certain and the most certain."""
FLOATS: tuple[type[np.generic], ...] = (np.float32, np.float64)
WHOLE = ("columns/target", "columns/label")
"""Columns that may hold whole numbers: classes."""
SIDE = 96
"""Most pixels of the longer side of a picture."""
CHOSEN = "chosen"
"""Name of the OOD score that a calibration chose on validation data."""
PARTS = ("columns", "scores", "ood", "gallery", "maps")
"""Parts of a file; the name of an array begins with one of them."""


@dataclass(frozen=True, eq=False)
class Gallery:
    """Test pictures of low certainty, lowest first, followed by those of high certainty, highest first.

    Args:
        index: Their numbers among the test samples, `[pictures]`.
        target: Their classes, `[pictures]`.
        label: Predicted classes, `[pictures]`.
        confidence: Probability of the predicted class, `[pictures]`.
        pixels: Bytes, `[pictures, height, width, 1 or 3]`.
        votes: Predicted class of each member, `[members, pictures]`.
        weights: Weight of each member, `[members]`.
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
    """Predictions of one run for each test sample.

    Args:
        columns: Columns by name, `[samples]` each.
        scores: OOD scores of the test samples by criterion, `[samples]` each.
        ood: OOD scores of other data sets, by data set and criterion.
        gallery: Pictures, if samples are images with one class each.
        maps: Pictures, if samples are images with a class for every pixel.
    """

    columns: dict[str, Array]
    scores: dict[str, Array]
    ood: dict[str, dict[str, Array]] = field(default_factory=dict)
    gallery: Gallery | None = None
    maps: Maps | None = None

    def save(self, file: Path) -> None:
        """Write all arrays as one `.npz` file, completely or not at all."""
        arrays = _prefixed("columns", self.columns)
        arrays |= _prefixed("scores", self.scores)
        for kind, scores in self.ood.items():
            for name, values in scores.items():
                # The criterion comes first, because the name of a data set may hold a slash.
                arrays[f"ood/{name}/{kind}"] = values
        if self.gallery is not None:
            names = np.array(self.gallery.class_names, dtype=np.str_)
            arrays |= _prefixed("gallery", {**vars(self.gallery), "class_names": names})
        if self.maps is not None:
            arrays |= _prefixed("maps", vars(self.maps))
        with replacing(file) as unfinished, unfinished.open("wb") as stream:
            np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, file: Path) -> "Outcomes":
        """Return the outcomes that `save` wrote.

        Raises:
            CheckpointError: the file is damaged, or holds something else.
        """
        arrays = read_arrays(file, REMEDY)
        try:
            return cls._of_arrays(arrays)
        except (ValueError, TypeError, KeyError) as error:
            raise CheckpointError(
                f"{file} must hold outcomes, got a file in which {error}. {REMEDY}"
            ) from error

    @classmethod
    def _of_arrays(cls, arrays: dict[str, Any]) -> "Outcomes":
        parts: dict[str, dict[str, Any]] = {name: {} for name in PARTS}
        for key, values in arrays.items():
            part, name = key.split("/", 1)
            if part not in ("gallery", "maps"):
                _check_column(key, values)
            parts[part][name] = values
        lengths = {len(values) for values in parts["columns"].values()}
        if len(lengths) > 1:
            raise ValueError(f"all columns must have one length, got {sorted(lengths)}")
        ood: dict[str, dict[str, Array]] = {}
        for key, values in parts["ood"].items():
            name, kind = key.split("/", 1)
            ood.setdefault(kind, {})[name] = values
        gallery = None
        if parts["gallery"]:
            gallery = _read_gallery(parts["gallery"])
        maps = read_maps(parts["maps"]) if parts["maps"] else None
        return cls(parts["columns"], parts["scores"], ood, gallery, maps)


def _prefixed(part: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {f"{part}/{name}": values for name, values in arrays.items()}


def _check_column(key: str, values: Array) -> None:
    """Raise `ValueError` unless values are a column of a type that figures can compute with."""
    types = FLOATS
    if key in WHOLE:
        types = (*FLOATS, np.int32, np.int64)
    # Equality of types compares the order of bytes too, and torch knows no other than that of the machine.
    if values.ndim != 1 or not any(values.dtype == one for one in types):
        names = " or ".join(one.__name__ for one in types)
        raise ValueError(f"{key} must be a column of {names}, got {values.dtype} {values.shape}")


def _read_gallery(arrays: Mapping[str, Array]) -> Gallery:
    """Return a gallery; raise `ValueError` unless its arrays have the shapes that `Gallery` names."""
    pictures, members = len(arrays["index"]), len(arrays["weights"])
    for name in ("index", "target", "label", "confidence"):
        _check_gallery_array(name, arrays[name], (pictures,), "iuf")
    _check_gallery_array("votes", arrays["votes"], (members, pictures), "iu")
    _check_gallery_array("weights", arrays["weights"], (members,), "iuf")
    _check_gallery_array("class_names", arrays["class_names"], arrays["class_names"].shape[:1], "U")
    # The page draws pixels as PNG files, which have 1 or 3 channels of bytes.
    pixels = arrays["pixels"]
    _check_gallery_array("pixels", pixels, (pictures, *pixels.shape[1:]), "u")
    if pixels.ndim != 4 or pixels.shape[3] not in (1, 3) or pixels.dtype != np.uint8:
        raise ValueError(
            "gallery/pixels must be bytes [pictures, height, width, 1 or 3], "
            f"got {pixels.dtype} {pixels.shape}"
        )
    names = tuple(str(name) for name in arrays["class_names"])
    fields: dict[str, Any] = {**arrays, "class_names": names}
    return Gallery(**fields)


def _check_gallery_array(name: str, values: Array, shape: tuple[int, ...], kinds: str) -> None:
    """Raise `ValueError` unless an array has this shape, and a type of one of NumPy's kinds."""
    if values.shape != shape or values.dtype.kind not in kinds:
        raise ValueError(
            f"gallery/{name} must have shape {shape} and a type of kind {kinds!r}, "
            f"got {values.dtype} {values.shape}"
        )


def read_outcomes(prediction: Prediction, target: Tensor, calibrated: Prediction | None = None) -> Outcomes:
    """Return the columns and scores of a prediction on test data.

    Args:
        prediction: The raw one.
        target: What was right.
        calibrated: The same, calibrated: decisions that cost something are made from its probabilities.
    """
    scores = stored_ood_scores(prediction, calibrated)
    corrected, _ = samples(prediction if calibrated is None else calibrated, target)
    prediction, target = samples(prediction, target)
    found: Mapping[str, Tensor] = {"target": target}
    if isinstance(prediction, DiscretePrediction):
        found = _class_columns(prediction, target)
        if isinstance(corrected, DiscretePrediction) and calibrated is not None:
            found = {**found, **_calibrated_columns(corrected)}
    elif isinstance(prediction, ContinuousPrediction):
        found = _number_columns(prediction, target)
    columns = {name: _stored(values) for name, values in found.items()}
    return Outcomes(columns, scores)


def stored_ood_scores(prediction: Prediction, calibrated: Prediction | None = None) -> dict[str, Array]:
    """Return the OOD scores of every criterion, `[samples]` each, thinned and cast for the file.

    Args:
        prediction: The raw one.
        calibrated: The same, calibrated. Its score, which may be a distance that needs validation data, is
            stored under `CHOSEN`.
    """
    found = dict(ood_scores(prediction))
    # A calibration without a threshold, such as a temperature alone, says nothing of strange samples.
    if calibrated is not None and getattr(calibrated.calibration, "threshold", None) is not None:
        chosen = calibrated.ood_score
        if chosen.ndim == 1:
            found[CHOSEN] = chosen
    return {name: _stored(values) for name, values in found.items()}


def make_gallery(
    prediction: Prediction, target: Tensor, x: Tensor, class_names: tuple[str, ...] = ()
) -> Gallery | None:
    """Return the pictures of lowest and highest certainty, or None without at least two pictures.

    Args:
        prediction: Classes, one for each sample.
        target: The right classes, `[batch]`.
        x: Inputs of the network, before scaling, `[batch, 1 or 3, height, width]`.
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
    # Predictions, targets and inputs may be on different devices.
    return Gallery(
        index=index.cpu().numpy(),
        target=target[index.to(target.device)].cpu().numpy().astype(np.int32),
        label=prediction.labels[index].cpu().numpy().astype(np.int32),
        confidence=prediction.confidence[index].detach().cpu().float().numpy(),
        pixels=picture_bytes(x[index.to(x.device)], SIDE),
        votes=prediction.member_labels[:, index].cpu().numpy().astype(np.int32),
        weights=prediction.weights.detach().cpu().float().numpy(),
        class_names=class_names,
    )


def _class_columns(prediction: DiscretePrediction, target: Tensor) -> Mapping[str, Tensor]:
    found = {
        "target": target,
        "label": prediction.labels,
        "confidence": prediction.confidence,
        "nll": nll_per_sample(prediction, target),
        "brier": squared_distance(prediction, target),
    }
    if prediction.log_probabilities.shape[1] == 2:
        found["positive"] = prediction.log_probabilities[:, 1].exp()
    return found


def _calibrated_columns(prediction: DiscretePrediction) -> Mapping[str, Tensor]:
    found = {"calibrated_confidence": prediction.confidence}
    if prediction.log_probabilities.shape[1] == 2:
        found["calibrated_positive"] = prediction.log_probabilities[:, 1].exp()
    return found


def _number_columns(prediction: ContinuousPrediction, target: Tensor) -> Mapping[str, Tensor]:
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


def _stored(values: Tensor) -> Array:
    """Return at most `MOST` values, evenly spaced, as 32-bit numbers."""
    values = values.detach().flatten().cpu()
    if len(values) > MOST:
        # float32 would round positions above 16 million.
        positions = torch.linspace(0, len(values) - 1, MOST, dtype=torch.float64)
        values = values[positions.long()]
    narrow = values.float() if values.is_floating_point() else values.int()
    return narrow.numpy()
