"""The files that image sets are published in, read as bytes `[count, channels, height, width]` and labels."""

import gzip
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pluribus.data.arrays import npz_archive
from pluribus.data.limits import MOST_BYTES, check_bytes, check_file
from pluribus.data.sources import optional
from pluribus.data.split import Split
from pluribus.errors import InputError

Array = np.ndarray[Any, Any]
CIFAR_PIXELS = 3 * 32 * 32


def channels_first(images: Array) -> Tensor:
    """Return images as `[count, channels, height, width]`; they may be grey without channels, or end in them.

    Channels are 1 or 3; they are taken to be last where both readings are possible.
    """
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[3] in (1, 3):
        images = images.transpose(0, 3, 1, 2)
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise InputError(
            "images must be [count, height, width], or have 1 or 3 channels first or last, "
            f"got shape {list(images.shape)}. Transpose them."
        )
    return torch.from_numpy(np.ascontiguousarray(images))


def labels(values: Array) -> Tensor:
    """Return class numbers, int64 `[count]`."""
    return torch.from_numpy(np.ascontiguousarray(values).reshape(-1).astype(np.int64))


def idx(path: Path, most_bytes: int = MOST_BYTES) -> Array:
    """Return the bytes of an idx file, plain or compressed by gzip.

    The file starts with two zeros, the type (8 is bytes), the number of axes, and their sizes, big-endian.
    """
    check_file(path)
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        start = file.read(4)
        axes = start[3] if len(start) == 4 else 0
        head = file.read(4 * axes)
        if start[:3] != b"\0\0\x08" or len(head) < 4 * axes:
            raise InputError(f"{path} must be an idx file of bytes, got one that starts with {start!r}.")
        shape = np.frombuffer(head, ">u4").tolist()
        wanted = math.prod(shape)
        check_bytes(str(path), wanted, most_bytes)
        # One byte more than wanted tells a file that is too long, whatever a gzip file expands to.
        content = bytearray(file.read(wanted + 1))
    if len(content) != wanted:
        came = "more" if len(content) > wanted else len(content)
        raise InputError(f"{path} must hold {wanted} bytes after its head, got {came}. Get it again.")
    return np.frombuffer(content, np.uint8).reshape(shape)


def idx_pair(path: Path) -> Split:
    """Return images of an idx file and the labels beside it, under the names that MNIST gave them."""
    beside = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    return Split(channels_first(idx(path)), labels(idx(beside)))


def cifar_binary(marks: int, *names: str) -> Callable[[Path], Split]:
    """Return a reader of the binary form of CIFAR.

    Records are `marks` label bytes, the last of which counts, and pixels. `names` are the
    files, all of which lie where the first one does.
    """

    def read(path: Path) -> Split:
        parts = []
        for name in names:
            content = np.frombuffer(path.with_name(name).read_bytes(), np.uint8)
            size = marks + CIFAR_PIXELS
            if not len(content) or len(content) % size:
                raise InputError(
                    f"{path.with_name(name)} must hold records of {size} bytes, "
                    f"got {len(content)} bytes. Get it again."
                )
            parts.append(content.reshape(-1, size))
        records = np.concatenate(parts)
        images = records[:, marks:].reshape(-1, 3, 32, 32)
        return Split(channels_first(images), labels(records[:, marks - 1]))

    return read


def undifferenced(differences: Array) -> Array:
    """Return the images of which these are the differences modulo 256 along channel, row and column."""
    for axis in (1, 2, 3):
        differences = differences.cumsum(axis, dtype=np.uint8)
    return differences


def npz_part(part: str) -> Callable[[Path], Split]:
    """Return a reader of `x_train` and `y_train` (or of `part`), or `x` or its differences `d`, and `y`."""

    def read(path: Path) -> Split:
        with npz_archive(path) as archive:
            if "d" in archive:
                return Split(channels_first(undifferenced(archive["d"])), labels(archive["y"]))
            end = "" if "x" in archive else f"_{part}"
            return Split(channels_first(archive[f"x{end}"]), labels(archive[f"y{end}"]))

    return read


def svhn_mat(path: Path) -> Split:
    """Read the published form of SVHN, where the digit 0 has the label 10."""
    content = optional("scipy.io", "scipy").loadmat(path)
    return Split(channels_first(content["X"].transpose(3, 2, 0, 1)), labels(content["y"]) % 10)
