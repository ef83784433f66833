"""Divide samples into training, validation and test parts: seeded, disjoint, classes in proportion."""

import math
from typing import TypedDict, cast

import torch
from torch import Generator, Tensor

from pluribus.data.split import Split
from pluribus.data.streams import Streams
from pluribus.errors import InputError, SettingError
from pluribus.ranges import check, invalid, nearest

# For a part that is not published: at least so many samples, and one in so many.
HELD_OUT = {"test": (1, 5), "validation": (0, 10)}


class Sizes(TypedDict, total=False):
    """Hold how much of each part a task keeps. Smaller parts hold the classes in the same proportions.

    Attributes:
        train: Training samples; all by default. The samples of other parts do not depend on it.
        validation: Validation samples, or 0; by default the published part, or a tenth of the training part.
        test: Test samples; by default the published part, or a fifth of all.
        seed: Seed of every choice, 0 by default.
    """

    train: int | None
    validation: int | None
    test: int | None
    seed: int


def seeded(*key: object) -> Generator:
    """Return a generator of its own for every key."""
    return Streams(["/".join(map(str, key))]).generators[0]


def quotas(sizes: Tensor, count: int) -> Tensor:
    """Split `count` over classes of the given sizes, in proportion and at least one each, `[classes]`."""
    exact = sizes.double() * count / sizes.sum()
    given = exact.floor().long().clamp(min=1)
    while missing := count - int(given.sum()):
        # The class that is farthest from its share gets or gives the next sample.
        lag = (exact - given) * missing
        if missing < 0:
            lag = lag.masked_fill(given == 1, -torch.inf)
        given[lag.argmax()] += 1 if missing > 0 else -1
    return given


def strata(y: Tensor) -> Tensor:
    """Return the class of each sample; one for all where targets are not single classes."""
    return y if y.ndim == 1 and not y.is_floating_point() else torch.zeros(len(y), dtype=torch.int64)


def stratified(labels: Tensor, count: int, generator: Generator) -> Tensor:
    """Return ascending numbers of `count` samples with the classes in proportion, at least one of each."""
    order = torch.randperm(len(labels), generator=generator)
    classes, sizes = torch.unique(labels, return_counts=True)
    shares = zip(classes, quotas(sizes, count).tolist(), strict=True)
    return torch.cat([order[labels[order] == one][:share] for one, share in shares]).sort().values


def check_count(name: str, count: int, least: int, most: int) -> None:
    """Raise for a number that is too small or too large."""
    if type(count) is not int or not least <= count <= most:
        raise invalid(name, f"a whole number from {least} to {most}", count)


def wanted(sizes: Sizes, part: str) -> int | None:
    """Return how many samples of a part are wanted, None for the default."""
    return cast("int | None", sizes.get(part))


def subset(split: Split, part: str, count: int | None, seed: int) -> Split:
    """Return `count` samples of a split, or all of them."""
    if count is None:
        return split
    if part == "validation" and count == 0:
        return split.take(torch.arange(0))
    labels = strata(split.y)
    check_count(part, count, len(torch.unique(labels)), len(split))
    return split.take(stratified(labels, count, seeded(seed, part)))


def hold_out(split: Split, part: str, count: int | None, seed: int) -> tuple[Split, Split]:
    """Return what stays, with at least one sample of each class, and the `count` samples held out."""
    least, share = HELD_OUT[part]
    labels = strata(split.y)
    classes = len(torch.unique(labels))
    most = len(split) - classes
    if most < least:
        raise InputError(
            f"samples must be enough to train on all classes and to test, got {len(split)} samples of "
            f"{classes} classes. Add samples, or use the likelihood gaussian for numbers to predict."
        )
    count = min(max(round(len(split) / share), least), most) if count is None else count
    check_count(part, count, least, most)
    kept = stratified(labels, len(split) - count, seeded(seed, part))
    held = torch.ones(len(split), dtype=torch.bool).index_fill(0, kept, False)
    return split.take(kept), split.take(held.nonzero().flatten())


def divide(parts: tuple[Split, Split | None, Split | None], sizes: Sizes) -> tuple[Split, Split, Split]:
    """Return training, validation and test part; a part that is None is held out of the training samples."""
    check_sizes(sizes)
    seed = sizes.get("seed", 0)
    train, *published = parts
    found = {}
    for part, split in (("test", published[1]), ("validation", published[0])):
        count = wanted(sizes, part)
        if split is None:
            train, found[part] = hold_out(train, part, count, seed)
        else:
            found[part] = subset(split, part, count, seed)
    return subset(train, "train", sizes.get("train"), seed), found["validation"], found["test"]


def check_sizes(sizes: Sizes) -> None:
    """Raise for an unknown name or an impossible seed."""
    for name in sizes:
        if name not in Sizes.__annotations__:
            raise SettingError(
                f"sizes are {', '.join(Sizes.__annotations__)}, got {name!r}."
                + nearest(name, Sizes.__annotations__)
            )
    check("seed", sizes.get("seed", 0), int, at_least=0, at_most=math.inf)
