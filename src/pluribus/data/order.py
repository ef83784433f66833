"""The order in which samples are gone through: it follows from the seeds of generators alone."""

from collections.abc import Iterator, Sequence

import torch
from torch import Generator, Tensor


def index_batches(
    count: int, size: int, generators: Sequence[Generator] = (), share: slice = slice(None)
) -> Iterator[Tensor]:
    """Yield the numbers of the samples of each batch.

    Args:
        count: How many samples there are.
        size: The most samples of a batch.
        generators: One for each order of the samples; a batch holds a batch of each, one after the other.
            Without any, samples come as they lie.
        share: The part of every batch that this process takes.
    """
    orders = [torch.randperm(count, generator=one) for one in generators] or [torch.arange(count)]
    for start in range(0, count, size):
        yield torch.cat([order[start : start + size][share] for order in orders])
