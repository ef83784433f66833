"""Handwritten digits that come with scikit-learn: 1797 grey images of 8 × 8 pixels."""

from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import Tensor

from pluribus.data.assembly import assemble
from pluribus.data.sources import optional
from pluribus.data.split import Split
from pluribus.data.splits import Sizes, seeded
from pluribus.data.task import Task
from pluribus.errors import InputError
from pluribus.likelihood import Categorical

LUMA = (0.299, 0.587, 0.114)
SIDE = 8
LEVELS = 16  # grey levels of the digits above 0
TEST = PATCHES = 600
CORRUPTED = 200


def digits(**sizes: Unpack[Sizes]) -> Task:
    """Return scikit-learn's handwritten digits to classify, 8 × 8, grey.

    By default 600 of them are for testing, of which the first 200 are corrupted. Out of distribution: 600
    grey patches of scikit-learn's two photographs. Reading them needs Pillow; without it they are `missing`.

    Args:
        **sizes: How much of each part to keep.
    """
    datasets = optional("sklearn.datasets", "scikit-learn")
    x, y = datasets.load_digits(return_X_y=True)
    images = torch.from_numpy(x).float().reshape(-1, 1, SIDE, SIDE) / LEVELS
    if sizes.get("test") is None:
        sizes["test"] = TEST
    ood, missing = {}, {}
    try:
        optional("PIL.Image", "pillow")  # scikit-learn reads its photographs with it
    except InputError as error:
        missing["photographs"] = str(error)
    else:
        ood["photographs"] = patches(datasets, sizes.get("seed", 0))
    parts = (Split(images, torch.from_numpy(y).long()), None, None)
    task = assemble("digits", parts, sizes, likelihood=Categorical(), classes=10, ood=ood, missing=missing)
    some = {"images": task.shifted.images[:CORRUPTED], "y": task.shifted.y[:CORRUPTED]}  # type: ignore[attr-defined]
    return replace(task, shifted=replace(task.shifted, **some))  # type: ignore[type-var]


def patches(datasets: Any, seed: int) -> Tensor:
    """Some of the disjoint patches of the photographs, grey in [0, 1], `[count, 1, 8, 8]`."""
    found = []
    for photograph in datasets.load_sample_images().images:
        grey = torch.from_numpy(photograph.copy()).double() @ torch.tensor(LUMA, dtype=torch.float64) / 255
        tiles = grey.unfold(0, SIDE, SIDE).unfold(1, SIDE, SIDE)
        found.append(tiles.reshape(-1, 1, SIDE, SIDE).float())
    tiles = torch.cat(found)
    return tiles[torch.randperm(len(tiles), generator=seeded(seed, "photographs"))[:PATCHES]]
