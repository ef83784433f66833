"""Ten classes of Tiny ImageNet, 64 × 64 pixels; its validation part, which has labels, is the test part."""

from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Unpack

import numpy as np
import torch
from torch import Tensor

from pluribus.data.arrays import npz_archive
from pluribus.data.assembly import assemble
from pluribus.data.image_files import Array, channels_first, labels
from pluribus.data.pictures import picture, pictures
from pluribus.data.sources import Source, data_folder
from pluribus.data.split import Split
from pluribus.data.splits import Sizes
from pluribus.data.task import Task
from pluribus.likelihood import Categorical

SIDE = 64
CLASSES = {
    "n01443537": "goldfish",
    "n02056570": "king penguin",
    "n01882714": "koala",
    "n02124075": "Egyptian cat",
    "n02509815": "lesser panda",
    "n04146614": "school bus",
    "n04562935": "water tower",
    "n07753592": "banana",
    "n07920052": "espresso",
    "n09428293": "seashore",
}
"""The classes in order: what the files call them, and their names."""


def tiny_imagenet(data_dir: str | Path | None = None, **sizes: Unpack[Sizes]) -> Task:
    """Ten classes of Tiny ImageNet to classify, 64 × 64, colour, tested on the published validation part.

    Args:
        data_dir: The data folder; by default what PLURIBUS_DATA names.
        **sizes: How much of each part to keep.
    """
    train, test = SOURCE.read(data_folder(data_dir))
    return assemble(
        "tiny_imagenet",
        (train, None, test),
        sizes,
        likelihood=Categorical(),
        classes=len(CLASSES),
        class_names=tuple(CLASSES.values()),
    )


def published(path: Path) -> tuple[Split, Split]:
    """Training and validation part of the published folder, of which only these classes are read."""
    notes = (path / "val" / "val_annotations.txt").read_text(encoding="utf-8").splitlines()
    found = [note.split("\t")[:2] for note in notes]
    train = {wnid: sorted((path / "train" / wnid / "images").glob("*.JPEG")) for wnid in CLASSES}
    test = {wnid: [path / "val" / "images" / file for file, own in found if own == wnid] for wnid in CLASSES}
    return _split(train), _split(test)


def _split(files: dict[str, list[Path]]) -> Split:
    counts = torch.tensor([len(own) for own in files.values()])
    together = [file for own in files.values() for file in own]
    return Split(pictures(together, SIDE), torch.arange(len(counts)).repeat_interleave(counts))


def packed(path: Path) -> tuple[Split, Split]:
    """Both parts from one file: the JPEG files one after the other, where each ends, and the labels."""
    with npz_archive(path) as archive:
        train, test = (
            Split(jpegs(archive[f"{part}_jpg"], archive[f"{part}_off"]), labels(archive[f"{part}_y"]))
            for part in ("train", "val")
        )
    return train, test


def jpegs(content: Array, ends: Array) -> Tensor:
    """Pictures `[count, 3, 64, 64]` of files that lie in `content` from each of `ends` to the next."""
    files = (BytesIO(content[start:end].tobytes()) for start, end in pairwise(ends))
    return channels_first(np.stack([picture(file, SIDE) for file in files]))


SOURCE = Source(
    "Tiny ImageNet",
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    {"tiny-imagenet-200": published, "tiny_imagenet/ten_classes_64_jpeg.npz": packed},
)
