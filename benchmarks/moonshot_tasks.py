"""Tasks of the moonshot: data, one network each, and the configurations to compare.

Every task has a training set, a validation set to choose settings by, a test set, an out-of-distribution
set, and proxies: changed validation samples by which an out-of-distribution score may be chosen without
seeing the out-of-distribution set. The data of a task is the same for all seeds, so that two configurations
are compared on the same samples.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn

import pluribus as pl
from pluribus import data
from pluribus.backbones import cnn, mlp
from pluribus.backbones.resnet import BasicBlock, resnet
from pluribus.data.task import Split, Task
from pluribus.methods import (
    EMP,
    MIMO,
    SAE,
    BatchEnsemble,
    DeepEnsembles,
    LayerEnsembles,
    Masksembles,
    PackedEnsembles,
    Single,
)

SHIFT = 1.5
"""Distance, in standard deviations, by which every input of a shifted row of a table is moved."""


@dataclass(frozen=True)
class Configuration:
    """A method, and the layers that it converts; none named are all."""

    method: pl.Method
    include: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Study:
    """A task with its network and its lengths of training.

    Attributes:
        load: Loads the data.
        network: Builds the network.
        steps: Length of the short training, of which others are multiples.
        ood: Name of the out-of-distribution set that decides.
        configurations: The methods to compare, by name.
        rates: The two learning rates that are tried.
        batch: Samples in a step.
    """

    load: Callable[[], Task]
    network: Callable[[], nn.Module]
    steps: int
    ood: str
    configurations: dict[str, Configuration]
    rates: tuple[float, float]
    batch: int


def halved(images: Tensor) -> Tensor:
    """Average squares of 2 × 2 pixels."""
    return nn.functional.avg_pool2d(images, 2)


def halved_task(task: Task, ood: dict[str, Tensor]) -> Task:
    """Return a task of images with half as many pixels on each side, and these out-of-distribution sets."""
    parts = {}
    for name in ("train", "validation", "test"):
        split = getattr(task, name)
        parts[name] = Split(halved(split.x), split.y)
    strangers = {name: halved(images) for name, images in ood.items()}
    return replace(task, **parts, shifted={}, ood=strangers)


def fashion14() -> Task:
    """Return Fashion-MNIST at 14 × 14 pixels, 5000 images to train on; digits are out of distribution."""
    task = data.load_task("fashion_mnist", train=5000, validation=2000)
    ood = {name: task.ood[name][:5000] for name in ("mnist", "kmnist")}
    return halved_task(task, ood)


def pneumonia14() -> Task:
    """Return PneumoniaMNIST at 14 × 14 pixels; ultrasound images of breasts are out of distribution."""
    task = data.load_task("pneumonia_mnist", border=0)
    other = data.load_task("breast_mnist", border=0)
    parts = []
    for split in (other.train, other.validation, other.test):
        # Images of the other set in the units in which the network sees its own.
        parts.append(task.prepare(other.scaling.invert(split.x)))
    return halved_task(task, {"breast": torch.cat(parts)})


def cifar16() -> Task:
    """Return CIFAR-10 at 16 × 16 pixels, 10,000 images to train on; house numbers are out of distribution."""
    task = data.load_task("cifar10", train=10_000, validation=2000)
    return halved_task(task, {name: task.ood[name] for name in ("svhn", "cifar100")})


def divided(split: Split, sizes: tuple[int, int, int]) -> list[Split]:
    """Return three parts of some rows, drawn once for all seeds."""
    order = torch.randperm(len(split), generator=Generator().manual_seed(0))
    return [split.take(index) for index in order[: sum(sizes)].split(sizes)]


def shifted(rows: Tensor) -> Tensor:
    """Move every number of a table up or down by `SHIFT`."""
    signs = torch.randint(2, rows.shape, generator=Generator().manual_seed(1)) * 2 - 1
    return rows + SHIFT * signs.to(rows)


def all_rows(name: str) -> tuple[Task, Split]:
    """Return a set of UCI and all of its rows, standardised by the published training part."""
    task = data.load_task(name, validation=0)
    x = torch.cat([task.train.x, task.test.x])
    y = torch.cat([task.train.y, task.test.y])
    return task, Split(x, y)


def kin8nm() -> Task:
    """Return kin8nm with 5000 rows to train on, 1000 to validate and 2192 to test on."""
    task, rows = all_rows("kin8nm")
    train, validation, test = divided(rows, (5000, 1000, 2192))
    return replace(task, train=train, validation=validation, test=test, ood={"shifted": shifted(test.x)})


def protein4() -> Task:
    """Return Protein with the quarter of the target as class: 8000, 2000 and 8000 rows."""
    _, rows = all_rows("protein")
    parts = divided(rows, (8000, 2000, 8000))
    edges = parts[0].y.flatten().quantile(torch.tensor([0.25, 0.5, 0.75], dtype=parts[0].y.dtype))
    train, validation, test = (Split(part.x, torch.bucketize(part.y.flatten(), edges)) for part in parts)
    return Task(
        name="protein4",
        train=train,
        validation=validation,
        test=test,
        classes=4,
        ood={"shifted": shifted(test.x)},
    )


def proxies(task: Task) -> Tensor:
    """Return changed validation samples: the same kinds for all images, and the same for all tables."""
    x = task.validation.x[:1000]
    if x.ndim == 2:
        order = torch.rand(x.shape, generator=Generator().manual_seed(2)).argsort(0)
        return torch.cat([x.gather(0, order)[:500], 2 * x[500:]])
    rotated, inverted, mixed, swapped = x[: len(x) // 4 * 4].chunk(4)
    half = x.shape[-1] // 2
    mixed = mixed.clone()
    mixed[..., :half] = mixed.roll(1, 0)[..., :half]
    parts = (
        rotated.rot90(1, (2, 3)),
        x.amax() + x.amin() - inverted,
        mixed,
        swapped.roll((half, half), (2, 3)),
    )
    return torch.cat(parts)


def configurations(
    alpha: float, layer: tuple[tuple[str, ...], int], patched: tuple[str, ...]
) -> dict[str, Configuration]:
    """Return the methods to compare.

    Args:
        alpha: Of the packed ensemble: the greatest that takes at most 1.5 times the multiply-adds.
        layer: Layers with options, and how many options: also at most 1.5 times the multiply-adds.
        patched: Layers that are patched.
    """
    names, options = layer
    return {
        "single": Configuration(Single()),
        "deep4": Configuration(DeepEnsembles(4)),
        "packed4": Configuration(PackedEnsembles(4, alpha)),
        "sae22": Configuration(SAE(2, 2)),
        "masks4": Configuration(Masksembles(4, 2.0, repeat=True)),
        "mimo2": Configuration(MIMO(2, input_repetition=0.5, batch_repetition=2)),
        "batch4": Configuration(BatchEnsemble(4, repeat=True)),
        # Prior networks would run the whole network again.
        "layer": Configuration(LayerEnsembles(options, prior_scale=0.0, train_draws=4), names),
        "emp": Configuration(EMP(where=patched, draws=25)),
    }


OF_CNN = configurations(2.4, (("layer3.0.conv", "fc"), 2), ("layer3.0.norm", "fc"))
OF_MLP = configurations(2.35, (("output",), 5), ("output",))
OF_RESNET = configurations(2.45, (("layer3.0.conv2", "fc"), 2), ("layer3.0.bn2", "fc"))

TABLES: dict[str, Any] = {"rates": (3e-3, 1e-2), "batch": 256}
IMAGES: dict[str, Any] = {"rates": (2e-3, 5e-3), "batch": 128}
"""Larger batches than usual: a step of these small networks costs little more with more samples."""

STUDIES = {
    "kin8nm": Study(kin8nm, partial(mlp, 8, 2, (128, 128)), 400, "shifted", OF_MLP, **TABLES),
    "protein4": Study(protein4, partial(mlp, 9, 4, (128, 128)), 400, "shifted", OF_MLP, **TABLES),
    "fashion14": Study(fashion14, partial(cnn, 10, 1, 16), 300, "mnist", OF_CNN, **IMAGES),
    "pneumonia14": Study(pneumonia14, partial(cnn, 2, 1, 16), 300, "breast", OF_CNN, **IMAGES),
    "cifar16": Study(
        cifar16,
        partial(resnet, BasicBlock, (1, 1, 1), 10, 3, "cifar", 16),
        600,
        "svhn",
        OF_RESNET,
        **IMAGES,
    ),
}
