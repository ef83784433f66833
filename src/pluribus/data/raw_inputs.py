"""Inputs of a file to predict for: read, and held against the inputs that a task was trained on.

Raw inputs are what the task's source gives before scaling: features in their own units; images as bytes
or in [0, 1], with channels first, last or, of grey ones, none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pluribus.data.input_checks import check_inputs
from pluribus.data.limits import MOST_BYTES, check_bytes
from pluribus.data.pictures import ENDINGS, Reading, read_pictures
from pluribus.data.raw_arrays import array_inputs, several_inputs
from pluribus.data.raw_tables import table_inputs
from pluribus.data.signature import Signature
from pluribus.errors import InputError

TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet", ".npy", ".npz")
ROWS = 512
"""Inputs that are read and predicted at a time."""


@dataclass(frozen=True, eq=False)
class RawInputs:
    """Inputs before scaling.

    Args:
        values: Numbers, `[count, ...]`; where a network has several inputs, a dict of them by name.
        flags: For each row of a table, how it is unlike training; empty for arrays.
        ids: What names each input: the cell of a column of ids, the line in a table, the row in an array, or
            the path of a picture.
    """

    values: Any
    flags: tuple[str, ...] = ()
    ids: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return len(self.tensors()[0])

    def tensors(self) -> list[Tensor]:
        """Return the tensor of each input of the network."""
        return list(self.values.values()) if isinstance(self.values, dict) else [self.values]


def read_inputs(path: Path, signature: Signature, most_bytes: int = MOST_BYTES) -> RawInputs:
    """Return all raw inputs of a file at once; `input_chunks` describes the arguments."""
    parts: list[RawInputs] = []
    size = 0
    for part in input_chunks(path, signature, ROWS, most_bytes):
        size += sum(one.numel() * one.element_size() for one in part.tensors())
        check_bytes(f"the inputs of {path}", size, most_bytes)
        parts.append(part)
    flags = tuple(flag for part in parts for flag in part.flags)
    ids = tuple(one for part in parts for one in part.ids)
    return RawInputs(_joined([part.values for part in parts]), flags, ids)


def _joined(values: list[Any]) -> Any:
    """Return tensors, or tensors by name, one behind the other."""
    if isinstance(values[0], dict):
        return {name: torch.cat([one[name] for one in values]) for name in values[0]}
    return torch.cat(values)


def input_chunks(
    path: Path, signature: Signature, rows: int = ROWS, most_bytes: int = MOST_BYTES
) -> Iterator[RawInputs]:
    """Yield raw inputs of a file or a folder of pictures, of the shape that the network takes.

    Args:
        path: A `.npy`, `.npz`, `.csv`, `.tsv`, `.txt` or `.parquet` file, or a folder of pictures.
        signature: Of the network that the inputs are for.
        rows: The most inputs at a time.
        most_bytes: Memory that the inputs of a chunk may take.
    """
    if path.is_dir():
        yield from _picture_chunks(path, signature, rows, most_bytes)
        return
    if not path.is_file():
        raise InputError(f"{path} must be a file of inputs, got no file. Check the path.")
    if path.suffix not in SUFFIXES:
        raise InputError(f"inputs must be one of {', '.join(SUFFIXES)}, got {path}. Write one of these.")
    if path.suffix in (*TEXT_SUFFIXES, ".parquet"):
        for part in table_inputs(path, signature, rows):
            yield checked(f"inputs of {path}", RawInputs(part.values, part.flags, part.ids), signature)
        return
    first = 0
    for values in _arrays(path, signature, rows, most_bytes):
        count = len(RawInputs(values))
        raw = RawInputs(values, ids=tuple(range(first, first + count)))
        yield checked(f"inputs of {path}", raw, signature)
        first += count
    if not first:
        raise InputError(f"{path} must hold numbers [count, ...], got none.")


def _arrays(path: Path, signature: Signature, rows: int, most_bytes: int) -> Iterator[Any]:
    if signature.has_several_inputs:
        return several_inputs(path, signature.inputs, rows, most_bytes)
    return array_inputs(path, signature.input_shape, rows, most_bytes)


def checked(name: str, raw: RawInputs, signature: Signature) -> RawInputs:
    """Return the inputs; raise where a single one has another shape than in training."""
    if not signature.has_several_inputs:
        check_inputs(name, raw.values, signature.input_shape)
    return raw


def _picture_chunks(path: Path, signature: Signature, rows: int, most_bytes: int) -> Iterator[RawInputs]:
    """Yield the pictures of a folder and of the folders in it, by their paths."""
    shape = signature.input_shape
    if len(shape) != 3 or shape[0] not in (1, 3) or shape[1] != shape[2]:
        raise InputError(f"{path} must be a file of inputs of shape {list(shape)}, got a folder.")
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())
    if not files:
        raise InputError(f"{path} must hold pictures ({', '.join(ENDINGS)}), got none.")
    how = Reading(shape[1], grey=shape[0] == 1, most_bytes=most_bytes)
    for start in range(0, len(files), rows):
        some = files[start : start + rows]
        ids = tuple(str(file.relative_to(path)) for file in some)
        yield RawInputs(read_pictures(some, how)[0], ids=ids)
