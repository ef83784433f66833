"""Share: the part of a batch that one of several processes computes.

Every process knows the whole batch: it draws the same rows, assigns the same samples to them, and computes
the losses of every W-th sample of each row. Sums of losses s and of weights n are added over processes p:

    mean_m = Σ_p s_mp / Σ_p n_mp                                                           (1)

The objective made of these means is that of one process, in each of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, final

import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.mechanisms.members.sample_draws import drawing_for
from pluribus.mechanisms.network.inputs import Inputs

Batch = tuple[Inputs, Tensor, Tensor | None]
"""Inputs, targets, and weights of samples."""


class Share(ABC):
    """The part of a batch that this process computes."""

    @abstractmethod
    def count(self, batch: int, device: torch.device) -> int:
        """Return how many samples the whole batch has, of which `batch` are given here, on this device."""

    @abstractmethod
    def of_batch(self, batch: Batch) -> Batch:
        """Return the samples of which this process computes the losses of all rows."""

    @abstractmethod
    def drawing(self, count: int, device: torch.device) -> AbstractContextManager[None]:
        """Return a context in which draws for samples are those of the whole batch of `count` samples."""

    @abstractmethod
    def of_part(self, part: Tensor) -> Tensor:
        """Return the positions that this process computes, of those that a row sees; at least one."""

    @abstractmethod
    def mean(self, means: Tensor, parts: Sequence[Tensor] | None, batch: Batch) -> Tensor:
        """Return the mean losses over the whole batch, `[rows]`.

        Args:
            means: Of the samples that this process computed, `[rows]`.
            parts: By row, the positions in the whole batch that it sees; None is all of them for all rows.
            batch: As it was given.
        """


@final
class Alone(Share):
    """The whole batch, in the only process."""

    def count(self, batch: int, device: torch.device) -> int:
        return batch

    def of_batch(self, batch: Batch) -> Batch:
        return batch

    def drawing(self, count: int, device: torch.device) -> AbstractContextManager[None]:
        return nullcontext()

    def of_part(self, part: Tensor) -> Tensor:
        return part

    def mean(self, means: Tensor, parts: Sequence[Tensor] | None, batch: Batch) -> Tensor:
        return means


ALONE = Alone()


@final
class OneOfSeveral(Share):
    """Every W-th sample of each row. `torch.distributed` must be initialised.

    Args:
        rank: Number of this process, from 0.
        processes: How many processes there are, W.
        taken: Whether the samples given are those of this process already. Methods that assign samples to
            members need the whole batch.
    """

    def __init__(self, rank: int, processes: int, taken: bool = False) -> None:
        self.rank, self.processes, self.taken = rank, processes, taken

    def count(self, batch: int, device: torch.device) -> int:
        if not self.taken:
            return batch
        # Processes with GPUs exchange tensors of GPUs alone.
        counted = torch.tensor([batch], device=device)
        return int(_summed(counted, self.processes))

    def of_batch(self, batch: Batch) -> Batch:
        if self.taken:
            return batch
        inputs, y, weights = batch
        mine = self._mine(torch.arange(inputs.batch, device=y.device))
        return inputs.take(mine), y[mine], None if weights is None else weights[mine]

    def drawing(self, count: int, device: torch.device) -> AbstractContextManager[None]:
        return drawing_for(count, self._mine(torch.arange(count, device=device)))

    def of_part(self, part: Tensor) -> Tensor:
        if self.taken:
            raise InputError(
                "methods that assign samples to members need the whole batch in every process, got the "
                "samples of one. Pass all samples, and taken=False."
            )
        return self._mine(part)

    def mean(self, means: Tensor, parts: Sequence[Tensor] | None, batch: Batch) -> Tensor:
        seen: Sequence[Tensor | None] = [None] if parts is None else parts
        norms = [self._weight(part, batch) for part in seen]
        each = means.new_tensor(norms).expand(len(means))
        sums, totals = _summed(torch.stack([means * each, each]), self.processes).unbind()  # Eq. (1)
        return sums / totals.clamp(min=torch.finfo(means.dtype).tiny)

    def _mine(self, part: Tensor) -> Tensor:
        # A row with fewer samples than processes: one of them runs again here, and counts nothing in the sum.
        # Without it, tensors of the row would have no gradient in this process.
        return part[self.rank :: self.processes] if len(part) > self.rank else part[:1]

    def _weight(self, part: Tensor | None, batch: Batch) -> float:
        """Return the sum of the weights of the samples that this process computes."""
        inputs, y, weights = batch
        part = torch.arange(inputs.batch, device=y.device) if part is None else part
        mine = part if self.taken else part[self.rank :: self.processes]
        if weights is None:
            return float(len(mine))
        # A sample weighs what its positions weigh on average, as in `weighted_mean`.
        return float(weights[mine].flatten(1).mean(1).sum() if weights.ndim > 1 else weights[mine].sum())


class _Summed(torch.autograd.Function):
    """Add a tensor over all processes.

    Every process computes the same objective of the sums, so its gradient is known without communication.
    Averaging gradients over the processes, as `DistributedDataParallel` does, divides it by their number.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor, processes: int) -> Tensor:
        ctx.processes = processes
        total = value.detach().clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.processes, None


def _summed(value: Tensor, processes: int) -> Tensor:
    if not torch.distributed.is_initialized():
        raise InputError(
            "a share of a batch needs processes that can talk, got no process group. Start them with "
            "torchrun or Fabric, or leave share out."
        )
    total: Tensor = _Summed.apply(value, processes)  # type: ignore[no-untyped-call]
    return total
