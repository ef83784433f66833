"""Any `.npz` file of arrays as a task."""

from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from pluribus.data.arrays import npz_archive
from pluribus.data.assembly import assemble
from pluribus.data.image_files import channels_first
from pluribus.data.limits import MOST_BYTES, listed
from pluribus.data.sources import reading
from pluribus.data.split import Split
from pluribus.data.splits import Sizes
from pluribus.data.targets import targets
from pluribus.data.task import Task
from pluribus.errors import InputError
from pluribus.likelihood import MISSING, Categorical, Likelihood, check_finite
from pluribus.likelihood import likelihood as named_likelihood
from pluribus.ranges import check

REQUIRED = ("x_train", "y_train", "x_test", "y_test")
OPTIONAL = ("x_val", "y_val", "x_ood")


def npz_file(
    path: str | Path,
    likelihood: str | Likelihood = "categorical",
    classes: int | None = None,
    images: bool | None = None,
    most_bytes: int = MOST_BYTES,
    **sizes: Unpack[Sizes],
) -> Task:
    """Return a task of the arrays `x_train`, `y_train`, `x_test`, `y_test`, and optional ones.

    Optional are `x_val`, `y_val` and `x_ood`.

    Args:
        path: The file.
        likelihood: Of the targets; `categorical` ones are class numbers from 0.
        classes: How many classes; by default one more than the greatest label of training.
        images: Whether `x` holds images, bytes or floats in [0, 1], with channels first, last or none; by
            default where it holds bytes or has four axes. Other inputs are standardised number by number, or
            by axis 1 where they have four axes.
        most_bytes: Memory that the arrays may take.
        **sizes: How much of each part to keep.
    """
    path, likelihood = Path(path).expanduser(), named_likelihood(likelihood)
    check("most_bytes", most_bytes, int, at_least=1)
    arrays = read_arrays(path, most_bytes)
    if classes is not None:
        check("classes", classes, int, at_least=2)
    # Bytes are hardly ever anything else than images.
    if images is None:
        images = arrays["x_train"].dtype == np.uint8 or arrays["x_train"].ndim == 4

    def part(name: str) -> Split:
        x = inputs(f"x_{name}", arrays[f"x_{name}"], images)
        return Split(x, targets(f"y_{name}", arrays[f"y_{name}"], likelihood))

    train, test = part("train"), part("test")
    validation = part("val") if "x_val" in arrays else None
    if isinstance(likelihood, Categorical) and classes is None:
        classes = int(train.y.max()) + 1
    ood = {"ood": inputs("x_ood", arrays["x_ood"], images)} if "x_ood" in arrays else {}
    parts = (train, validation, test)
    return assemble(path.stem, parts, sizes, likelihood=likelihood, classes=classes, ood=ood)


def read_arrays(path: Path, most_bytes: int = MOST_BYTES) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of a task; the required ones are there and hold something."""
    with reading(path), npz_archive(path, most_bytes) as archive:
        held = tuple(archive)
        arrays = archive.read((*REQUIRED, *OPTIONAL))
    required = (*REQUIRED, "y_val") if "x_val" in arrays else REQUIRED
    lacking = [name for name in required if name not in arrays or not arrays[name].size]
    if lacking:
        raise InputError(
            f"{path} must hold {', '.join(required)}, got {', '.join(lacking)} empty or not among "
            f"{listed(held) or 'nothing'}. Write it with numpy.savez(path, x_train=..., ...)."
        )
    return arrays


def inputs(name: str, values: np.ndarray[Any, Any], images: bool) -> Tensor:
    """Return images `[count, channels, height, width]` as they are, or numbers `[count, ...]` in float64."""
    if values.dtype.kind not in "biuf" or values.ndim < 2:
        raise InputError(
            f"{name} must hold numbers [count, ...], got {values.dtype} of shape {list(values.shape)}."
        )
    if values.dtype.kind == "f":
        check_finite(name, torch.from_numpy(values), MISSING)
    if not images:
        return torch.from_numpy(values.astype(np.float64))
    if values.dtype == np.uint8:
        return channels_first(values)
    if values.dtype.kind != "f" or not 0 <= values.min() <= values.max() <= 1:
        raise InputError(
            f"{name} must hold bytes, or floats in [0, 1], to be images, got {values.dtype} from "
            f"{values.min():g} to {values.max():g}. Divide by the greatest value, or set images=False."
        )
    return channels_first(values).float()
