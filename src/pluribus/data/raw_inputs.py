"""Inputs of a file to predict for: read, and held against the inputs that a task was trained on.

Raw inputs are what the task's source gives before scaling: features in their own units; images as bytes
or in [0, 1], with channels first, last or, of grey ones, none.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pluribus.data.arrays import is_archive, npz_archive, read_npy
from pluribus.data.csv_file import check_columns, is_number, numbers, read_rows
from pluribus.data.image_files import channels_first
from pluribus.data.limits import MOST_BYTES, listed
from pluribus.data.scaling import unit
from pluribus.data.sources import UNREADABLE
from pluribus.data.task import Task, check_inputs
from pluribus.errors import InputError, PluribusError

SUFFIXES = (".csv", ".npy", ".npz")
KEY = "x"
"""The array of an `.npz` file that holds inputs."""


def read_inputs(path: Path, task: Task, delimiter: str = ",", most_bytes: int = MOST_BYTES) -> Tensor:
    """Raw inputs of a `.npy`, `.npz` or `.csv` file, `[count, ...]`, of the shape that the task has.

    Args:
        path: The file.
        task: What the inputs are for.
        delimiter: Between the columns of a CSV file.
        most_bytes: Memory that the inputs may take.
    """
    if not path.is_file():
        raise InputError(f"{path} must be a file of inputs, however: there is none.")
    if path.suffix not in SUFFIXES:
        raise InputError(f"inputs are read from {', '.join(SUFFIXES)}, however: {path}. Write one of these.")
    if path.suffix == ".csv":
        raw = _read_csv(path, task, delimiter, most_bytes)
    else:
        raw = _read_array(path, task, most_bytes)
    check_inputs(f"inputs of {path}", raw, task.input_shape)
    return raw


def far_outside(raw: Tensor, task: Task) -> str:
    """What to tell of inputs that lie beyond the training inputs by more than their range; else nothing."""
    x, known = task.prepare(raw), task.train.x
    over = tuple(axis for axis in range(x.ndim) if axis != 1)  # features and channels lie on axis 1
    low, high = known.amin(over, keepdim=True), known.amax(over, keepdim=True)
    odd = (x > 2 * high - low) | (x < 2 * low - high)
    if not odd.any():
        return ""
    count, column = int(odd.flatten(1).any(1).sum()), int(odd.nonzero()[0, 1])
    unnamed = f"{'channel' if x.ndim == 4 else 'feature'} {column}"
    name = repr(task.feature_names[column]) if task.feature_names else unnamed
    here, there = (_range(part[:, column]) for part in (unit(raw), task.scaling.invert(known)))
    return (
        f"inputs must be raw, as they were before scaling, however: {count} of {len(x)} lie far outside of "
        f"the training inputs: {name} ranges from {here}, in training from {there}."
    )


def _range(values: Tensor) -> str:
    return f"{values.min():.4g} to {values.max():.4g}"


def _read_csv(path: Path, task: Task, delimiter: str, most_bytes: int) -> Tensor:
    """The features by their names, or all columns in order where the task has no names of features."""
    header, rows = read_rows(path, delimiter, most_bytes)
    names = list(task.feature_names)
    wanted = f"the {len(names)} features {listed(names)}" if names else "the features"
    if all(map(is_number, header)) and not (names and set(names) <= set(header)):
        raise InputError(
            f"the first line of {path} must name {wanted}, however: it holds numbers. Put the names above it."
        )
    check_columns(path, header, names, delimiter)
    return numbers(header, rows, names or header)


def _read_array(path: Path, task: Task, most_bytes: int) -> Tensor:
    try:
        values = _npz_inputs(path, most_bytes) if is_archive(path) else read_npy(path, most_bytes)
    except PluribusError:
        raise
    except UNREADABLE as error:
        raise InputError(
            f"{path} must be a whole {path.suffix} file of numbers, however: it is cut short, of another "
            "kind, or holds objects. Write it again with NumPy."
        ) from error
    if values.dtype.kind not in "biuf" or values.ndim < 2 or not len(values):
        raise InputError(
            f"{path} must hold numbers [count, ...], however: {values.dtype} of shape {list(values.shape)}."
        )
    images = len(task.input_shape) == 3
    values = values.astype(_precision(values.dtype, images), copy=False)
    if images and values.shape[1:] != task.input_shape:
        return channels_first(values)
    return torch.from_numpy(values)


def _npz_inputs(path: Path, most_bytes: int) -> np.ndarray[Any, Any]:
    """Return the array of an archive that holds inputs."""
    with npz_archive(path, most_bytes) as archive:
        if KEY not in archive:
            held = listed(list(archive)) or "nothing"
            raise InputError(
                f"{path} must hold the inputs as {KEY}, however: it holds {held}. "
                f"Write it with numpy.savez(path, {KEY}=...)."
            )
        return archive[KEY]


def _precision(dtype: np.dtype[Any], images: bool) -> type[np.generic]:
    """What torch computes with: bytes of images as they are, else floats that lose nothing."""
    if images and dtype == np.uint8:
        return np.uint8
    return np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64
