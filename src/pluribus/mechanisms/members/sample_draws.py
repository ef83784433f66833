"""Random draws for each sample of a batch, of which this process may compute a share alone.

Draws are made for all samples of the batch, and those of the share are taken, so that they do not depend on
how many processes there are. The share is set around a training step: engines between the step and the draw
know the samples that they run, and not the batch that these come from.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

_SHARE: ContextVar[tuple[int, Tensor] | None] = ContextVar("share of a batch", default=None)
"""The number of samples of the whole batch, and the positions in it that are computed here."""


@dataclass(frozen=True)
class SampleDraws:
    """How many samples draws are made for, and whose are used.

    Attributes:
        count: Samples that draws are made for.
        used: Positions of those that are used; None is all.
    """

    count: int
    used: Tensor | None = None

    def take(self, drawn: Tensor) -> Tensor:
        """Return the draws that are used, of draws `[count, ...]`."""
        return drawn if self.used is None else drawn[self.used.to(drawn.device)]


@contextlib.contextmanager
def drawing_for(count: int, used: Tensor) -> Iterator[None]:
    """Make draws for a batch of `count` samples inside of the block, and use those at some positions."""
    token = _SHARE.set((count, used))
    try:
        yield
    finally:
        _SHARE.reset(token)


def sample_draws(batch: int) -> SampleDraws:
    """Return the draws for samples that run together.

    Args:
        batch: How many run, for several rows a multiple of the samples that this process has.
    """
    share = _SHARE.get()
    if share is None:
        return SampleDraws(batch)
    count, used = share
    rows = batch // len(used)
    starts = torch.arange(rows, device=used.device) * count
    return SampleDraws(rows * count, (starts[:, None] + used).flatten())
