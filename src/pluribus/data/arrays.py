"""NumPy's files, `.npy` and `.npz`, read without trust.

The head of every array is read and compared with the limit and with the bytes that follow before memory is
allocated. Pickled objects are refused. Numbers come back in this machine's byte order, and long doubles
as float64, because torch lacks them.
"""

import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from pluribus.data.limits import MOST_BYTES, check_bytes, check_file
from pluribus.errors import InputError

Array = np.ndarray[Any, Any]
ZIP_START = b"PK"
HEADS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
"""Readers of the head by version; version 3 differs only in the names of fields, which plain numbers lack."""


class Archive(Mapping[str, Array]):
    """Arrays of an open `.npz` file by name, each read when it is looked up.

    Args:
        file: The open file.
        path: Its name in error messages.
        most_bytes: Memory that one array may take.
    """

    def __init__(self, file: IO[bytes], path: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path, self.most_bytes = path, most_bytes
        self.zip = zipfile.ZipFile(file)
        self.entries = {entry.filename.removesuffix(".npy"): entry for entry in self.zip.infolist()}

    def __getitem__(self, name: str) -> Array:
        entry = self.entries[name]
        with self.zip.open(entry) as file:
            return _read(file, f"{name} of {self.path}", entry.file_size, self.most_bytes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries  # the default reads the array

    def read(self, names: Iterable[str]) -> dict[str, Array]:
        """Return those of the named arrays that are there; together they take at most `most_bytes`."""
        found = [name for name in names if name in self]
        total = sum(self.entries[name].file_size for name in found)
        check_bytes(f"the arrays of {self.path}", total, self.most_bytes)
        return {name: self[name] for name in found}


@contextmanager
def npz_archive(path: Path, most_bytes: int = MOST_BYTES) -> Iterator[Archive]:
    """Open an `.npz` file."""
    check_file(path)
    with path.open("rb") as file:
        yield Archive(file, path, most_bytes)


def read_npy(path: Path, most_bytes: int = MOST_BYTES) -> Array:
    """Return the array of an `.npy` file."""
    check_file(path)
    with path.open("rb") as file:
        return _read(file, str(path), path.stat().st_size, most_bytes)


def array_chunks(path: Path, name: str | None, rows: int, most_bytes: int = MOST_BYTES) -> Iterator[Array]:
    """Yield an array of an `.npy` or `.npz` file, up to so many rows at a time.

    Args:
        path: The file.
        name: Of the array in an archive; None for an `.npy` file.
        rows: The most rows at a time.
        most_bytes: Memory that the rows of one chunk may take.
    """
    check_file(path)
    with path.open("rb") as raw:
        if name is None:
            yield from _chunks(raw, str(path), path.stat().st_size, rows, most_bytes)
            return
        archive = Archive(raw, path, most_bytes)
        entry = archive.entries[name]
        with archive.zip.open(entry) as file:
            yield from _chunks(file, f"{name} of {path}", entry.file_size, rows, most_bytes)


def is_archive(path: Path) -> bool:
    """Return whether a file is an `.npz` archive, whatever its name ends with."""
    check_file(path)
    with path.open("rb") as file:
        return file.read(len(ZIP_START)) == ZIP_START


def _head(
    file: IO[bytes], what: str, size: int, most_bytes: int | None = None
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and type of the array that starts here; raise unless `size` bytes hold it."""
    version = npy.read_magic(file)
    if version not in HEADS:
        raise InputError(f"{what} must be an array in NumPy's format 1.0 or 2.0, got {version}.")
    shape, fortran_order, dtype = HEADS[version](file)
    if dtype.hasobject:
        raise InputError(f"{what} must hold numbers, got pickled objects, which are never opened.")
    wanted = math.prod(shape) * dtype.itemsize  # whole numbers of Python do not overflow
    if most_bytes is not None:
        check_bytes(what, wanted, most_bytes)
    content = size - file.tell()
    if min(shape, default=0) < 0 or wanted != content:
        raise InputError(
            f"{what} must hold {wanted} bytes for {list(shape)} of {dtype}, got {content}. "
            "It is cut short or damaged: write it again."
        )
    return shape, fortran_order, dtype


def _chunks(file: IO[bytes], what: str, size: int, rows: int, most_bytes: int) -> Iterator[Array]:
    """Yield the rows of the array that starts here."""
    shape, fortran_order, dtype = _head(file, what, size)
    if not shape:
        raise InputError(f"{what} must hold numbers [count, ...], got a single one.")
    if fortran_order:
        # The rows of such an array do not lie together.
        wanted = math.prod(shape) * dtype.itemsize
        check_bytes(what, wanted, most_bytes)
        whole = _exactly(file, wanted, what).view(dtype).reshape(shape[::-1]).transpose()
        for start in range(0, shape[0], rows):
            yield _native(whole[start : start + rows])
        return
    row_bytes = math.prod(shape[1:]) * dtype.itemsize
    for start in range(0, shape[0], rows):
        count = min(rows, shape[0] - start)
        check_bytes(f"{count} rows of {what}", count * row_bytes, most_bytes)
        values = _exactly(file, count * row_bytes, what).view(dtype)
        yield _native(values.reshape(count, *shape[1:]))


def _read(file: IO[bytes], what: str, size: int, most_bytes: int) -> Array:
    """Return the array that starts here and takes `size` bytes together with its head."""
    shape, fortran_order, dtype = _head(file, what, size, most_bytes)
    values = _exactly(file, math.prod(shape) * dtype.itemsize, what).view(dtype)
    values = values.reshape(shape[::-1]).transpose() if fortran_order else values.reshape(shape)
    return _native(values)


def _exactly(file: IO[bytes], wanted: int, what: str) -> Array:
    """Return so many bytes; an archive may state more than it holds."""
    content = np.empty(wanted, np.uint8)
    found = file.readinto(content.data)  # type: ignore[attr-defined]
    if found != wanted:
        raise InputError(f"{what} must hold {wanted} bytes, got {found}. Write it again.")
    return content


def _native(values: Array) -> Array:
    """Return numbers of a type that torch has."""
    dtype = values.dtype
    if dtype.kind == "f" and dtype.itemsize > 8:
        dtype = np.dtype(np.float64)
    with np.errstate(
        over="ignore"
    ):  # what float64 cannot hold becomes infinite, and is refused as such later
        return values.astype(dtype.newbyteorder("="), copy=False)
