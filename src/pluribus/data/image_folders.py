"""Folders of pictures as tasks: one folder per class, in memory or read when they are needed."""

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import torch
from torch import Tensor

from pluribus.data.assembly import assemble
from pluribus.data.grey_levels import choose_levels
from pluribus.data.limits import MOST_BYTES, MOST_PIXELS
from pluribus.data.picture_files import CorruptedFiles, PictureFiles, channel_scaling
from pluribus.data.pictures import ENDINGS, FLOAT_BYTES, Reading, read_pictures
from pluribus.data.split import Split
from pluribus.data.splits import Sizes, divide
from pluribus.data.task import Task
from pluribus.errors import InputError
from pluribus.likelihood import Categorical
from pluribus.ranges import check, nearest

STREAMED_FROM = 2**30
"""Bytes from which on the pictures of a folder are read when they are needed."""
Files = tuple[Sequence[Path], Tensor]
"""Paths of pictures, and their classes, `[count]`."""


def image_folder(
    path: str | Path,
    size: int = 32,
    grey: bool = False,
    levels: tuple[float, float] | None = None,
    most_bytes: int = MOST_BYTES,
    most_pixels: int = MOST_PIXELS,
    stream: bool | None = None,
    workers: int = 0,
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
        stream: Whether to read pictures when they are needed; by default where all of them would take more
            than 1 GiB.
        workers: Processes that read ahead, where pictures are streamed.
        **sizes: How much of each part to keep.
    """
    check("stream", stream, bool, optional=True)
    check("workers", workers, int, at_least=0)
    how = Reading(size, grey, levels, most_bytes, most_pixels)
    root = Path(os.path.realpath(Path(path).expanduser()))
    published = (root / "train").is_dir()
    first = root / "train" if published else root
    names = class_names(first)
    found: dict[str, Files] = {"train": class_files(first, names)}
    for part in ("val", "test"):
        if published and (root / part).is_dir():
            found[part] = class_files(root / part, names)
    if stream is None:
        count = sum(len(files) for files, _ in found.values())
        stream = count * math.prod(how.shape) * FLOAT_BYTES > STREAMED_FROM
    made = (
        _streamed(root, found, names, how, sizes, workers)
        if stream
        else _held(root, found, names, how, sizes)
    )
    kind = read_pictures(found["train"][0][:1], how)[1]
    chosen = choose_levels(kind, levels)
    return replace(made, notes=(chosen.note(len(found["train"][0])),)) if chosen else made


def _held(root: Path, found: dict[str, Files], names: tuple[str, ...], how: Reading, sizes: Sizes) -> Task:
    """Return the task of pictures in memory."""
    splits: dict[str, Split] = {}
    first = ""
    for part, (files, y) in found.items():
        x, kind = read_pictures(files, how)
        first = first or kind
        if kind != first:
            raise InputError(f"{root / part} must hold {first} pictures as in training, got {kind} ones.")
        splits[part] = Split(x, y)
    return assemble(
        root.name,
        (splits["train"], splits.get("val"), splits.get("test")),
        sizes,
        likelihood=Categorical(),
        classes=len(names),
        class_names=names,
    )


def _streamed(
    root: Path, found: dict[str, Files], names: tuple[str, ...], how: Reading, sizes: Sizes, workers: int
) -> Task:
    """Return the task of pictures that are read when they are needed, divided as those in memory."""
    kind = read_pictures(found["train"][0][:1], how)[1]
    sets = {part: PictureFiles(files, y, how, kind) for part, (files, y) in found.items()}
    # Divided by numbers, of which those of a later part follow those of the parts before.
    numbers: dict[str, Split] = {}
    start = 0
    for part, files in sets.items():
        numbers[part] = Split(torch.arange(start, start + len(files)), files.y)
        start += len(files)
    parts = divide((numbers["train"], numbers.get("val"), numbers.get("test")), sizes)
    paths = [path for files in sets.values() for path in files.paths]
    everything = PictureFiles(paths, torch.cat([files.y for files in sets.values()]), how, kind)
    train, validation, test = (everything.take(part.x) for part in parts)
    scaling = channel_scaling(train)
    tested = test.changed(scaling)
    return Task(
        root.name,
        Split(train.changed(scaling), workers=workers),
        Split(validation.changed(scaling), workers=workers),
        Split(tested, workers=workers),
        classes=len(names),
        class_names=names,
        shifted=CorruptedFiles(tested),
        scaling=scaling,
    )


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


def class_files(folder: Path, names: tuple[str, ...]) -> Files:
    """Return the paths of all pictures of a folder of class folders, and their classes among `names`."""
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
    return found, torch.tensor(y)
