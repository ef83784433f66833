"""Validation samples altered until they are strange, to choose the score that finds strange samples.

Noise and blur are the wrong thing to choose by: a score that finds noise need not find other objects. These
changes keep the look of the data and break what is shown:

    images, [count, channels, height, width]
        rotated      by 180°, and by 90° and 270° where they are square
        inverted     bright and dark exchanged in each channel
        cutmix       a box of half the area comes from another sample
        swapped      the four quarters change places
    tables, [count, columns]
        permuted     each column is shuffled by itself: values stay usual, their combinations do not
        stretched    three times as far from the mean of all samples
    sequences, [count, length, ...], and whole numbers
        swapped      the halves change places
        mixed        the second half comes from another sample

Everything is seeded. Inputs of several tensors are not altered.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Generator, Tensor

STRETCH = 3.0
SEED = 20_181_031


def altered(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield changed samples by the name of the change; as many as came, or a multiple of them.

    Args:
        x: Samples `[count, ...]`, at least two.
    """
    for name, change in _changes(x):
        yield name, change(x, Generator().manual_seed(SEED))


def _changes(x: Tensor) -> list[tuple[str, Callable[[Tensor, Generator], Tensor]]]:
    if x.ndim == 4 and x.is_floating_point() and min(x.shape[2:]) > 1:
        return [("rotated", rotated), ("inverted", inverted), ("cutmix", cutmix), ("swapped", swapped)]
    if x.ndim == 2 and x.is_floating_point():
        # A single column has no combinations to break.
        several = [("permuted", permuted)] if x.shape[1] > 1 else []
        return [*several, ("stretched", stretched)]
    if x.ndim > 1 and x.shape[1] > 1:
        return [("swapped", halves_swapped), ("mixed", halves_mixed)]
    return []


def rotated(images: Tensor, generator: Generator) -> Tensor:
    """Return images turned by 180°, and of square ones two more sets, turned by 90° and 270°."""
    turns = (1, 2, 3) if images.shape[2] == images.shape[3] else (2,)
    return torch.cat([images.rot90(turn, (2, 3)) for turn in turns])


def inverted(images: Tensor, generator: Generator) -> Tensor:
    """Return images with bright and dark exchanged, within the range of each channel over all images."""
    low = images.amin((0, 2, 3), keepdim=True)
    high = images.amax((0, 2, 3), keepdim=True)
    return low + high - images


def cutmix(images: Tensor, generator: Generator) -> Tensor:
    """Return images with a box of half the area of another image, at the same place of both."""
    height, width = images.shape[2:]
    # Sides shorter by the root of one half.
    rows, columns = max(1, round(height * 0.7071)), max(1, round(width * 0.7071))
    other = images[_others(len(images), generator).to(images.device)]
    mixed = images.clone()
    tops = torch.randint(height - rows + 1, (len(images),), generator=generator).tolist()
    lefts = torch.randint(width - columns + 1, (len(images),), generator=generator).tolist()
    for sample, (top, left) in enumerate(zip(tops, lefts, strict=True)):
        box = (sample, slice(None), slice(top, top + rows), slice(left, left + columns))
        mixed[box] = other[box]
    return mixed


def swapped(images: Tensor, generator: Generator) -> Tensor:
    """Return images whose quarters changed places: each goes to the opposite corner."""
    height, width = images.shape[2:]
    return images.roll((height // 2, width // 2), (2, 3))


def permuted(table: Tensor, generator: Generator) -> Tensor:
    """Return a table each column of which is shuffled by itself."""
    columns = []
    for column in table.unbind(1):
        order = torch.randperm(len(table), generator=generator).to(table.device)
        columns.append(column[order])
    return torch.stack(columns, 1)


def stretched(table: Tensor, generator: Generator) -> Tensor:
    """Return samples that lie three times as far from the mean of all."""
    mean = table.mean(0)
    return mean + STRETCH * (table - mean)


def halves_swapped(x: Tensor, generator: Generator) -> Tensor:
    """Return sequences whose halves changed places."""
    return x.roll(x.shape[1] // 2, 1)


def halves_mixed(x: Tensor, generator: Generator) -> Tensor:
    """Return sequences whose second half comes from another sample."""
    other = x[_others(len(x), generator).to(x.device)]
    half = x.shape[1] // 2
    return torch.cat((x[:, :half], other[:, half:]), 1)


def _others(count: int, generator: Generator) -> Tensor:
    """Return another sample's number for each sample, drawn at random."""
    order = torch.randperm(count, generator=generator)
    other = torch.empty_like(order)
    # Each gets its successor in a random circle, so that nobody gets itself.
    other[order] = order.roll(1)
    return other
