"""Picture files, read by Pillow, and folders of them: one folder per class."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Unpack

import numpy as np
import torch
from torch import Tensor

from pluribus.data.assembly import assemble
from pluribus.data.grey_levels import BYTES, check_levels, choose_levels, kind_of
from pluribus.data.image_files import Array, channels_first
from pluribus.data.limits import MOST_BYTES, MOST_PIXELS, check_bytes, check_file
from pluribus.data.sources import optional, reading
from pluribus.data.split import Split
from pluribus.data.splits import Sizes
from pluribus.data.task import Task
from pluribus.errors import InputError
from pluribus.likelihood import Categorical
from pluribus.ranges import check, nearest

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


def image_folder(
    path: str | Path,
    size: int = 32,
    grey: bool = False,
    levels: tuple[float, float] | None = None,
    most_bytes: int = MOST_BYTES,
    most_pixels: int = MOST_PIXELS,
    **sizes: Unpack[Sizes],
) -> Task:
    """Return a task of pictures to classify, in one folder per class.

    Args:
        path: A folder of class folders, or one that holds such folders as `train`, `test` and, where there
            is one, `val`. Classes are numbered by the names of their folders.
        size: Height and width to bring all pictures to, in pixels.
        grey: Whether to read them as grey.
        levels: Values of black and white. By default 0 and 255 of bytes, 0 and 65535 of 16-bit pictures, 0
            and 1 of floats; 32-bit integers and other floats need it. The notes of the task name the range.
        most_bytes: Memory that the pictures of a part may take.
        most_pixels: Pixels of one file.
        **sizes: How much of each part to keep.
    """
    how = Reading(size, grey, levels, most_bytes, most_pixels)
    root = Path(path).expanduser().resolve()
    published = (root / "train").is_dir()
    first = root / "train" if published else root
    names = class_names(first)
    train, kind = class_folders(first, names, how)
    others: dict[str, Split | None] = {"val": None, "test": None}
    for part in others:
        if published and (root / part).is_dir():
            others[part], own = class_folders(root / part, names, how)
            if own != kind:
                raise InputError(f"{root / part} must hold {kind} pictures as in training, got {own} ones.")
    task = assemble(
        root.name,
        (train, others["val"], others["test"]),
        sizes,
        likelihood=Categorical(),
        classes=len(names),
        class_names=names,
    )
    chosen = choose_levels(kind, levels)
    return replace(task, notes=(chosen.note(len(train)),)) if chosen else task


def class_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the folders in a folder, in order."""
    if not folder.is_dir():
        raise InputError(f"the pictures must lie in a folder, got {folder}, which is none. Check the path.")
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    if len(names) < 2:
        raise InputError(
            f"{folder} must hold a folder per class, at least 2, got {len(names)}. "
            "Sort the pictures into folders by their classes."
        )
    return tuple(names)


def class_folders(folder: Path, names: tuple[str, ...], how: Reading) -> tuple[Split, str]:
    """Return all pictures of a folder of class folders with their classes among `names`, and their kind."""
    found: list[Path] = []
    y: list[int] = []
    for name in class_names(folder):
        if name not in names:
            raise InputError(
                f"classes must be {', '.join(names)} as in training, got {folder / name}."
                + nearest(name, names)
            )
        files = sorted(file for file in (folder / name).iterdir() if file.suffix.lower() in ENDINGS)
        if not files:
            raise InputError(
                f"{folder / name} must hold pictures ({', '.join(ENDINGS)}), got none. "
                "Add some, or remove the folder."
            )
        found += files
        y += [names.index(name)] * len(files)
    x, kind = read_pictures(found, how)
    return Split(x, torch.tensor(y)), kind
