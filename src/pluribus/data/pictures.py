"""Picture files, read by Pillow, and folders of them: one folder per class."""

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Unpack

import numpy as np
import torch
from torch import Tensor

from pluribus.data.assembly import assemble
from pluribus.data.image_files import Array, channels_first
from pluribus.data.sources import optional, reading
from pluribus.data.splits import Sizes
from pluribus.data.task import Split, Task
from pluribus.errors import InputError
from pluribus.likelihood import Categorical
from pluribus.settings import check, nearest

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")


def picture(file: Path | BinaryIO, size: int, grey: bool = False) -> Array:
    """One picture as bytes `[size, size, 3]`, or `[size, size]` if grey; the aspect is not kept."""
    pillow = optional("PIL.Image", "pillow")
    with pillow.open(file) as opened:
        mode = opened.convert("L" if grey else "RGB")
        return np.asarray(mode.resize((size, size), pillow.Resampling.BOX))


def pictures(paths: Sequence[Path], size: int, grey: bool = False) -> Tensor:
    """Pictures as bytes `[count, 3 or 1, size, size]`, reduced by averaging; the aspect is not kept."""
    found = np.empty((len(paths), size, size) + (() if grey else (3,)), np.uint8)
    for i, path in enumerate(paths):
        with reading(path):
            found[i] = picture(path, size, grey)
    return channels_first(found)


def image_folder(path: str | Path, size: int = 32, grey: bool = False, **sizes: Unpack[Sizes]) -> Task:
    """Pictures to classify, in one folder per class.

    Args:
        path: A folder of class folders, or one that holds such folders as `train`, `test` and, where there
            is one, `val`. Classes are numbered by the names of their folders.
        size: Height and width to bring all pictures to, in pixels.
        grey: Whether to read them as grey.
        **sizes: How much of each part to keep.
    """
    check("size", size, int, at_least=1)
    root = Path(path).expanduser().resolve()
    published = (root / "train").is_dir()
    first = root / "train" if published else root
    names = class_names(first)

    def part(folder: Path) -> Split | None:
        return class_folders(folder, names, size, grey) if published and folder.is_dir() else None

    return assemble(
        root.name,
        (class_folders(first, names, size, grey), part(root / "val"), part(root / "test")),
        sizes,
        likelihood=Categorical(),
        classes=len(names),
        class_names=names,
    )


def class_names(folder: Path) -> tuple[str, ...]:
    """The names of the folders in a folder, in order."""
    if not folder.is_dir():
        raise InputError(f"the pictures must lie in a folder, however: {folder} is none.")
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    if len(names) < 2:
        raise InputError(
            f"{folder} must hold a folder per class, at least 2, however: {len(names)}. "
            "Sort the pictures into folders by their classes."
        )
    return tuple(names)


def class_folders(folder: Path, names: tuple[str, ...], size: int, grey: bool) -> Split:
    """All pictures of a folder of class folders, and their classes among `names`."""
    found: list[Path] = []
    y: list[int] = []
    for name in class_names(folder):
        if name not in names:
            raise InputError(
                f"classes must be {', '.join(names)} as in training, however: {folder / name}."
                + nearest(name, names)
            )
        files = sorted(file for file in (folder / name).iterdir() if file.suffix.lower() in ENDINGS)
        if not files:
            raise InputError(
                f"{folder / name} must hold pictures ({', '.join(ENDINGS)}), however: it holds none. "
                "Add some, or remove the folder."
            )
        found += files
        y += [names.index(name)] * len(files)
    return Split(pictures(found, size, grey), torch.tensor(y))
