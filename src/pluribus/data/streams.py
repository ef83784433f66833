"""Random numbers for batches: every sample draws from a stream of its own.

A sample's numbers depend on its key and on nothing else in the batch, so data may be cut into batches in
any way. They are drawn on the CPU, so they are the same for every device.
"""

import hashlib
from collections.abc import Iterable

import torch
from torch import Generator, Tensor


class Streams:
    """One stream of random numbers per sample.

    Args:
        keys: What names each sample's stream; equal keys give equal numbers.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        digests = [hashlib.blake2b(key.encode(), digest_size=8).digest() for key in keys]
        self.generators = [Generator().manual_seed(int.from_bytes(digest) >> 1) for digest in digests]

    def normal(self, *shape: int) -> Tensor:
        """Standard normal, `[batch, *shape]`."""
        drawn = torch.empty(len(self.generators), *shape)
        for sample, generator in zip(drawn, self.generators, strict=True):
            sample.normal_(generator=generator)
        return drawn

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Uniform between `low` and `high`, `[batch, *shape]`."""
        drawn = torch.empty(len(self.generators), *shape)
        for sample, generator in zip(drawn, self.generators, strict=True):
            sample.uniform_(low, high, generator=generator)
        return drawn

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Whole numbers from `low` to `high - 1`, `[batch, *shape]`."""
        drawn = torch.empty(len(self.generators), *shape, dtype=torch.int64)
        for sample, generator in zip(drawn, self.generators, strict=True):
            sample.random_(low, high, generator=generator)
        return drawn

    def poisson(self, rates: Tensor) -> Tensor:
        """Counts of the given rates, `[batch, ...]` on the CPU."""
        pairs = zip(rates, self.generators, strict=True)
        return torch.stack([torch.poisson(rate, generator) for rate, generator in pairs])
