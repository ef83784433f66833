"""Published image sets: MNIST and its kin, CIFAR-10 and CIFAR-100, MedMNIST."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

import torch
from torch import Tensor
from torch.nn.functional import pad

from pluribus.data.arrays import npz_archive
from pluribus.data.assembly import assemble
from pluribus.data.image_files import channels_first, labels
from pluribus.data.image_sources import TEST, TRAIN
from pluribus.data.scaling import Scaling
from pluribus.data.sources import Source, data_folder
from pluribus.data.split import Split
from pluribus.data.splits import Sizes
from pluribus.data.task import Task
from pluribus.errors import SettingError
from pluribus.likelihood import Categorical, Gaussian
from pluribus.ranges import check, nearest

OOD = {
    "mnist": ("fashion_mnist", "kmnist"),
    "fashion_mnist": ("mnist", "kmnist"),
    "kmnist": ("mnist", "fashion_mnist"),
    "cifar10": ("svhn", "cifar100", "tiny_imagenet"),
    "cifar100": ("svhn", "cifar10", "tiny_imagenet"),
}
GARMENTS = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
OBJECTS = "airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck"
NAMES = {"fashion_mnist": tuple(GARMENTS.split(",")), "cifar10": tuple(OBJECTS.split(","))}
MEDICAL_CLASSES = {"pneumonia": 2, "breast": 2, "blood": 8, "retina": None}
GRADES = 4.0  # of retinopathy, 0 to 4


def image_set(
    name: str,
    data_dir: str | Path | None = None,
    ood: Sequence[str] | None = None,
    border: int = 0,
    **sizes: Unpack[Sizes],
) -> Task:
    """A published set to classify, with its own test part.

    Args:
        name: `mnist`, `fashion_mnist`, `kmnist` (28 × 28, grey), `cifar10` or `cifar100` (32 × 32, colour).
        data_dir: The data folder; by default what PLURIBUS_DATA names.
        ood: Sets that must be there as out-of-distribution sets: those above, `svhn` or `tiny_imagenet`. By
            default the usual ones as far as they are there; `missing` of the task names the others.
        border: Black pixels added on each side; 2 make 32 × 32 of 28 × 28.
        **sizes: How much of each part to keep.
    """
    check("name", name, choices=OOD)
    check("border", border, int, at_least=0)
    folder = data_folder(data_dir)
    others, missing = other_sets(folder, OOD[name] if ood is None else ood, required=ood is not None)
    return assemble(
        name,
        (framed(TRAIN[name].read(folder), border), None, framed(TEST[name].read(folder), border)),
        sizes,
        likelihood=Categorical(),
        classes=100 if name == "cifar100" else 10,
        class_names=NAMES.get(name, ()),
        ood={other: pad(x, (border,) * 4) for other, x in others.items()},
        missing=missing,
    )


def framed(split: Split, border: int) -> Split:
    """Images with so many black pixels more on each side."""
    return Split(pad(split.x, (border,) * 4), split.y)


def other_sets(
    folder: Path, names: Sequence[str], required: bool
) -> tuple[Mapping[str, Tensor], Mapping[str, str]]:
    """Raw test images of other sets, and what to do about those that are not there."""
    for name in names:
        if name not in TEST:
            raise SettingError(
                f"ood must name sets of {', '.join(TEST)}, however: {name!r}.{nearest(name, TEST)}"
            )
    found = [name for name in names if required or TEST[name].find(folder)]
    missing = {name: TEST[name].absence(folder) for name in names if name not in found}
    return {name: TEST[name].read(folder).x for name in found}, missing


def medmnist(name: str, data_dir: str | Path | None = None, border: int = 2, **sizes: Unpack[Sizes]) -> Task:
    """A set of MedMNIST v2 with its own validation and test part, as the SAE paper uses it.

    The grades of `retina`, 0 to 4, are numbers to predict, scaled to [0, 1].

    Args:
        name: `pneumonia`, `breast` (grey), `blood` or `retina` (colour).
        data_dir: The data folder; by default what PLURIBUS_DATA names.
        border: Black pixels added on each side; 2 make 32 × 32 of 28 × 28.
        **sizes: How much of each part to keep.
    """
    check("name", name, choices=MEDICAL_CLASSES)
    check("border", border, int, at_least=0)
    classes = MEDICAL_CLASSES[name]

    def read(path: Path) -> dict[str, Split]:
        with npz_archive(path) as archive:
            parts = {
                part: framed(
                    Split(channels_first(archive[f"{part}_images"]), labels(archive[f"{part}_labels"])),
                    border,
                )
                for part in ("train", "val", "test")
            }
        return parts if classes else {part: Split(s.x, s.y[:, None].double()) for part, s in parts.items()}

    file = f"medmnist/{name}mnist.npz"
    source = Source(f"{name.capitalize()}MNIST", "https://medmnist.com", {file: read})
    parts = source.read(data_folder(data_dir))
    return assemble(
        f"{name}_mnist",
        (parts["train"], parts["val"], parts["test"]),
        sizes,
        likelihood=Categorical() if classes else Gaussian(),
        classes=classes,
        target_scaling=Scaling(torch.zeros(1), torch.full((1,), GRADES)),
    )
