"""Read untrusted files that `torch.save` wrote: tensors and plain values, never code.

Two kinds of small files could take all memory. An archive whose parts are compressed unpacks to a thousand
times its size, and torch unpacks it although it never writes one. A tensor may repeat one stored number as
often as its shape says, which costs nothing until somebody computes with it.
"""

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pluribus.untrusted import MOST_ARRAY_BYTES

MOST_REPEATS = 4
"""How many times the size of its file all tensors may take: tied parameters are named several times."""


class TorchFileError(ValueError):
    """Raised for a file that takes more memory than it may; readers add what to do."""


def load_torch(path: Path) -> Any:
    """Return the content of a file.

    Raises:
        TorchFileError: It would take far more memory than its size.
        Exception: It is damaged; torch, zipfile and pickle have no common parent of errors.
    """
    if zipfile.is_zipfile(path):
        _check_archive(path)
    content = torch.load(path, map_location="cpu", weights_only=True)
    _check_repeats(content, path)
    return content


def _check_archive(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED:
                raise TorchFileError("its parts must not be compressed; torch.save writes them as they are")


def _check_repeats(content: Any, path: Path) -> None:
    """Raise for tensors that claim far more numbers than a file holds."""
    total = sum(tensor.numel() * tensor.element_size() for tensor in _tensors(content, set()))
    most = MOST_REPEATS * path.stat().st_size + MOST_ARRAY_BYTES
    if total > most:
        raise TorchFileError(f"its tensors must take at most {most} bytes, got {total}")


def _tensors(value: Any, seen: set[int]) -> Iterator[Tensor]:
    """Yield all tensors of nested dicts and lists, and enter each of these once."""
    if isinstance(value, Tensor):
        yield value
    # A list may hold itself, or one list a thousand times.
    if not isinstance(value, Mapping | list | tuple) or id(value) in seen:
        return
    seen.add(id(value))
    for part in value.values() if isinstance(value, Mapping) else value:
        yield from _tensors(part, seen)
