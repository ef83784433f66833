"""Picture files, read by Pillow, and folders of them: one folder per class."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from torch import Tensor

from pluribus.data.grey_levels import BYTES, check_levels, choose_levels, kind_of
from pluribus.data.image_files import Array, channels_first
from pluribus.data.limits import MOST_BYTES, MOST_PIXELS, check_bytes, check_file
from pluribus.data.sources import optional, reading
from pluribus.errors import InputError
from pluribus.ranges import check

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Reading:
    """Hold the settings by which pictures of one set are read.

    Args:
        size: Height and width to bring all pictures to, in pixels; the aspect is not kept.
        grey: Whether to read them as grey.
        levels: Values of black and white, for pictures that are not stored in bytes.
        most_bytes: Memory that all of them may take.
        most_pixels: Pixels of one file.
    """

    size: int
    grey: bool = False
    levels: tuple[float, float] | None = None
    most_bytes: int = MOST_BYTES
    most_pixels: int = MOST_PIXELS

    def __post_init__(self) -> None:
        check("size", self.size, int, at_least=1)
        check("most_bytes", self.most_bytes, int, at_least=1)
        check("most_pixels", self.most_pixels, int, at_least=1)
        check_levels(self.levels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of a picture."""
        return (self.size, self.size) if self.grey else (self.size, self.size, 3)


def picture(file: Path | BinaryIO, size: int, grey: bool = False) -> Array:
    """Return a picture as bytes `[size, size, 3]`, or `[size, size]` if grey; the aspect is not kept."""
    return _read(file, Reading(size, grey))[1]


def _read(file: Path | BinaryIO, how: Reading) -> tuple[str, Array]:
    """Return how a picture is stored, and its values: bytes, or float32 shares of its range."""
    pillow = optional("PIL.Image", "pillow")
    with warnings.catch_warnings():
        # Pillow warns of large pictures by a limit of its own; ours is checked below.
        warnings.simplefilter("ignore", pillow.DecompressionBombWarning)
        try:
            opened = pillow.open(file)
        except pillow.DecompressionBombError as error:
            raise InputError(f"{file} must be a picture that Pillow opens: {error}") from error
    with opened:
        # Opening reads the head alone, so that this comes before any pixel is decoded.
        pixels = opened.width * opened.height
        if pixels > how.most_pixels:
            raise InputError(
                f"{file} must have at most {how.most_pixels} pixels, got {opened.width} × {opened.height}. "
                "Reduce it, or raise the option most_pixels."
            )
        kind = kind_of(opened)
        levels = choose_levels(kind, how.levels)
        if levels is None:
            plain = opened.convert("L" if how.grey else "RGB")
            return kind, np.asarray(plain.resize((how.size, how.size), pillow.Resampling.BOX))
        if kind == BYTES:
            opened = opened.convert("L")
        shares = levels.scale(np.asarray(opened).astype(np.float64), file)
    reduced = pillow.fromarray(shares).resize((how.size, how.size), pillow.Resampling.BOX)
    values = np.asarray(reduced).clip(0, 1)  # averages may be rounded to above 1
    return kind, values if how.grey else np.repeat(values[..., None], 3, axis=-1)


def read_pictures(paths: Sequence[Path], how: Reading) -> tuple[Tensor, str]:
    """Return pictures `[count, 3 or 1, size, size]`, reduced by averaging, and how they are stored.

    They are bytes, or float32 in [0, 1] where they are stored with more than 8 bits.
    """
    wanted = len(paths) * math.prod(how.shape) * FLOAT_BYTES  # of the scaled inputs that they become
    check_bytes(f"{len(paths)} pictures of {how.size} × {how.size}", wanted, how.most_bytes)
    found: Array = np.empty(0)
    first = ""
    for i, path in enumerate(paths):
        check_file(path)
        with reading(path):
            kind, values = _read(path, how)
        if not i:
            found, first = np.empty((len(paths), *how.shape), values.dtype), kind
        if kind != first:
            raise InputError(
                f"pictures of one set must be stored alike, got {first} in {paths[0]} and {kind} in {path}. "
                "Convert them to one type."
            )
        found[i] = values
    return channels_first(found), first


def pictures(paths: Sequence[Path], size: int, grey: bool = False) -> Tensor:
    """Return pictures `[count, 3 or 1, size, size]`, reduced by averaging; the aspect is not kept."""
    return read_pictures(paths, Reading(size, grey))[0]
