"""Inputs of a file to predict for: read, and held against the inputs that a task was trained on.

Raw inputs are what the task's source gives before scaling: features in their own units; images as bytes
or in [0, 1], with channels first, last or, of grey ones, none.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pluribus.data.arrays import is_archive, npz_archive, read_npy
from pluribus.data.columns import NUMBER, Column, Columns
from pluribus.data.image_files import channels_first
from pluribus.data.input_checks import check_inputs
from pluribus.data.limits import MOST_BYTES, listed
from pluribus.data.scaling import unit
from pluribus.data.signature import Signature
from pluribus.data.sources import UNREADABLE
from pluribus.data.tables import check_columns, is_number, read_table
from pluribus.errors import InputError, PluribusError

SUFFIXES = (".csv", ".parquet", ".npy", ".npz")
KEY = "x"
"""The array of an `.npz` file that holds inputs."""


@dataclass(frozen=True, eq=False)
class RawInputs:
    """Inputs before scaling.

    Args:
        values: Numbers, `[count, ...]`.
        flags: For each row of a table, how it is unlike training; empty for arrays.
    """

    values: Tensor
    flags: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values)


def read_inputs(path: Path, signature: Signature, most_bytes: int = MOST_BYTES) -> RawInputs:
    """Return raw inputs of a `.npy`, `.npz`, `.csv` or `.parquet` file, of the shape that the network takes.

    Args:
        path: The file.
        signature: Of the network that the inputs are for.
        most_bytes: Memory that the inputs may take.
    """
    if not path.is_file():
        raise InputError(f"{path} must be a file of inputs, got no file. Check the path.")
    if path.suffix not in SUFFIXES:
        raise InputError(f"inputs must be one of {', '.join(SUFFIXES)}, got {path}. Write one of these.")
    if path.suffix in (".csv", ".parquet"):
        raw = _read_table(path, signature, most_bytes)
    else:
        raw = RawInputs(_read_array(path, signature.input_shape, most_bytes))
    check_inputs(f"inputs of {path}", raw.values, signature.input_shape)
    return raw


def far_outside(raw: Tensor, signature: Signature) -> str:
    """Return a warning where inputs lie beyond the training inputs by more than their range; else nothing."""
    x = signature.prepare(raw)
    # Features and channels lie on axis 1.
    shape = (1, -1, *[1] * (x.ndim - 2))
    low = signature.low.to(x).reshape(shape)
    high = signature.high.to(x).reshape(shape)
    odd = (x > 2 * high - low) | (x < 2 * low - high)
    if not odd.any():
        return ""
    count, column = int(odd.flatten(1).any(1).sum()), int(odd.nonzero()[0, 1])
    name = f"feature {column}"
    if x.ndim == 4:
        name = f"channel {column}"
    if signature.feature_names:
        name = repr(signature.feature_names[column])
    bounds = torch.cat((low, high)).expand(2, *x.shape[1:])
    here = _range(unit(raw)[:, column])
    there = _range(signature.scaling.invert(bounds)[:, column])
    return (
        f"inputs must be raw, as they were before scaling, got {count} of {len(x)} that lie far outside of "
        f"the training inputs: {name} ranges from {here}, in training from {there}."
    )


def _range(values: Tensor) -> str:
    """Return the least and the greatest value as text."""
    return f"{values.min():.4g} to {values.max():.4g}"


def _read_table(path: Path, signature: Signature, most_bytes: int) -> RawInputs:
    """Return the columns by their names, or all in order where the network has no names of features."""
    table = read_table(path, signature.delimiter, most_bytes)
    columns = signature.columns or plain_columns(signature.feature_names or tuple(table.cells))
    names = [column.name for column in columns.used]
    # A file without a header would lose its first row, and fail with a message on names that are numbers.
    if all(map(is_number, table.cells)) and not set(names) <= set(table.cells):
        raise InputError(
            f"the first line of {path} must name the {len(names)} features {listed(names)}, got numbers. "
            "Put the names above it."
        )
    check_columns(table, names, signature.delimiter)
    encoded = columns.encode(table.cells, table.lines)
    return RawInputs(torch.from_numpy(encoded.values), encoded.flags)


def plain_columns(names: tuple[str, ...]) -> Columns:
    """Return columns of numbers that all have to be there: no word stands for a missing one."""
    return Columns(tuple(Column(name, NUMBER) for name in names), missing_words=())


def _read_array(path: Path, shape: tuple[int, ...], most_bytes: int) -> Tensor:
    """Return the numbers of a `.npy` or `.npz` file, images with their channels first."""
    try:
        values = _npz_inputs(path, most_bytes) if is_archive(path) else read_npy(path, most_bytes)
    except PluribusError:
        raise
    except UNREADABLE as error:
        raise InputError(
            f"{path} must be a whole {path.suffix} file of numbers, got one that is cut short, of another "
            "kind, or holds objects. Write it again with NumPy."
        ) from error
    if values.dtype.kind not in "biuf" or values.ndim < 2 or not len(values):
        raise InputError(
            f"{path} must hold numbers [count, ...], got {values.dtype} of shape {list(values.shape)}."
        )
    images = len(shape) == 3
    values = values.astype(_precision(values.dtype, images), copy=False)
    if images and values.shape[1:] != shape:
        return channels_first(values)
    return torch.from_numpy(values)


def _npz_inputs(path: Path, most_bytes: int) -> np.ndarray[Any, Any]:
    """Return the array of an archive that holds inputs."""
    with npz_archive(path, most_bytes) as archive:
        if KEY not in archive:
            held = listed(list(archive)) or "nothing"
            raise InputError(
                f"{path} must hold the inputs as {KEY}, got {held}. "
                f"Write it with numpy.savez(path, {KEY}=...)."
            )
        return archive[KEY]


def _precision(dtype: np.dtype[Any], images: bool) -> type[np.generic]:
    """Return the type to compute with: bytes of images as they are, else floats that lose nothing."""
    if images and dtype == np.uint8:
        return np.uint8
    return np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64
