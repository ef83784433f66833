"""Inputs to predict for in NumPy's files: one array, or one for each input of the network."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pluribus.data.arrays import array_chunks, is_archive, npz_archive
from pluribus.data.image_files import channels_first
from pluribus.data.input_spec import InputSpec
from pluribus.data.limits import listed
from pluribus.data.sources import UNREADABLE
from pluribus.errors import InputError, PluribusError

KEY = "x"
"""The array of an `.npz` file that holds inputs."""


def array_inputs(path: Path, shape: tuple[int, ...], rows: int, most_bytes: int) -> Iterator[Tensor]:
    """Yield the numbers of a `.npy` or `.npz` file, images with their channels first.

    Args:
        path: The file.
        shape: Of one input.
        rows: The most inputs at a time.
        most_bytes: Memory that the inputs of a chunk may take.
    """
    with whole_file(path):
        name = KEY if is_archive(path) else None
        if name is not None:
            check_arrays(path, [KEY])
        for values in array_chunks(path, name, rows, most_bytes):
            yield to_tensor(path, values, shape)


def several_inputs(
    path: Path, inputs: tuple[InputSpec, ...], rows: int, most_bytes: int
) -> Iterator[dict[str, Tensor]]:
    """Yield the arrays of a `.npz` file by the names of the network's inputs; `array_inputs` has the rest."""
    names = [one.key for one in inputs]
    if path.suffix != ".npz":
        raise InputError(f"inputs must be a .npz file with {', '.join(names)}, got {path}.")
    with whole_file(path):
        check_arrays(path, names)
        streams = [array_chunks(path, name, rows, most_bytes) for name in names]
        for parts in zip(*streams, strict=True):
            if len({len(part) for part in parts}) != 1:
                raise InputError(f"{path} must hold as many rows in each of {', '.join(names)}.")
            yield {one.key: one.read(path, part) for one, part in zip(inputs, parts, strict=True)}


@contextmanager
def whole_file(path: Path) -> Iterator[None]:
    """Name the file in errors of damaged arrays."""
    try:
        yield
    except PluribusError:
        raise
    except UNREADABLE as error:
        raise InputError(
            f"{path} must be a whole {path.suffix} file of numbers, got one that is cut short, of another "
            "kind, or holds objects. Write it again with NumPy."
        ) from error


def check_arrays(path: Path, names: list[str]) -> None:
    """Raise unless an archive has these arrays."""
    with npz_archive(path) as archive:
        lacking = [name for name in names if name not in archive]
        if lacking:
            held = listed(list(archive)) or "nothing"
            wanted = ", ".join(f"{name}=..." for name in names)
            raise InputError(
                f"{path} must hold the inputs as {', '.join(names)}, got {held}. "
                f"Write it with numpy.savez(path, {wanted})."
            )


def to_tensor(name: Path | str, values: np.ndarray[Any, Any], shape: tuple[int, ...]) -> Tensor:
    """Return numbers as a tensor, images with their channels first.

    Args:
        name: Of the file or the argument, for error messages.
        values: The numbers, `[count, ...]`.
        shape: Of one input.
    """
    if values.dtype.kind not in "biuf" or values.ndim < 2 or not len(values):
        raise InputError(
            f"{name} must hold numbers [count, ...], got {values.dtype} of shape {list(values.shape)}."
        )
    images = len(shape) == 3
    values = values.astype(_precision(values.dtype, images), copy=False)
    if images and values.shape[1:] != shape:
        return channels_first(values)
    return torch.from_numpy(values)


def _precision(dtype: np.dtype[Any], images: bool) -> type[np.generic]:
    """Return the type to compute with: bytes of images as they are, else floats that lose nothing."""
    if images and dtype == np.uint8:
        return np.uint8
    return np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64
