"""Samples in memory: the fast path."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import torch
from torch import Generator, Tensor

from pluribus.data.batch import Batch
from pluribus.data.order import index_batches
from pluribus.data.sample_set import SampleSet
from pluribus.errors import InputError
from pluribus.mechanisms.network.inputs import Inputs


@final
class InMemory(SampleSet):
    """Hold the tensors of all samples.

    Args:
        x: Inputs `[count, ...]`: a tensor, a tuple of tensors, or a dict of them.
        y: Targets `[count, ...]`, or None.
        weights: How much each sample counts, `[count]`, or None.
    """

    def __init__(self, x: Any, y: Tensor | None, weights: Tensor | None = None) -> None:
        self.x, self.y, self.weights = x, y, weights
        self.count = len(y) if y is not None else len(next(iter(_tensors(x))))
        for tensor in _tensors(x):
            if len(tensor) != self.count:
                raise InputError(
                    f"x and y must have a row per sample, got {len(tensor)} and {self.count} rows. "
                    "Give each input its target."
                )
        if weights is not None and weights.shape != (self.count,):
            raise InputError(
                f"weights must be one number for each of {self.count} samples, got {list(weights.shape)}."
            )

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        """Return a sample as a pair, or its input alone where there are no targets."""
        x = _mapped(self.x, lambda tensor: tensor[index])
        return x if self.y is None else (x, self.y[index])

    def at(self, index: Tensor | slice) -> Batch:
        """Return some samples."""
        x = _mapped(self.x, lambda tensor: tensor[index])
        y = None if self.y is None else self.y[index]
        weights = None if self.weights is None else self.weights[index]
        return Batch(Inputs.of(x), y, weights)

    def read(
        self, size: int, generators: Sequence[Generator] = (), epoch: int = 0, share: slice = slice(None)
    ) -> Iterator[Batch]:
        """Yield all samples; a seed decides the order, whatever the epoch."""
        for index in index_batches(self.count, size, generators, share):
            yield self.at(index)

    def first(self, count: int) -> Batch:
        """Return the first samples."""
        return self.at(slice(0, count))

    def take(self, index: Tensor) -> "InMemory":
        """Return some of the samples, by their numbers."""
        y = None if self.y is None else self.y[index]
        weights = None if self.weights is None else self.weights[index]
        return InMemory(_mapped(self.x, lambda tensor: tensor[index]), y, weights)


def joined(batches: Sequence[Batch]) -> InMemory:
    """Return the samples of batches as one set in memory; raise where their shapes differ."""
    parts = [batch.x for batch in batches]
    first = parts[0]
    x: Any
    if isinstance(first, Mapping):
        names = [name for name, value in first.items() if isinstance(value, Tensor)]
        x = {name: _joined(name, [part[name] for part in parts]) for name in names}
    elif isinstance(first, tuple):
        x = tuple(_joined("inputs", list(values)) for values in zip(*parts, strict=True))
    else:
        x = _joined("inputs", parts)
    y = None if batches[0].y is None else _joined("targets", [batch.target for batch in batches])
    weights = [batch.weights for batch in batches if batch.weights is not None]
    return InMemory(x, y, torch.cat(weights) if weights else None)


def _joined(name: str, parts: list[Tensor]) -> Tensor:
    """Return tensors of one shape and type as one."""
    kinds = {(tuple(part.shape[1:]), part.dtype) for part in parts}
    if len(kinds) != 1:
        shown = " and ".join(f"{list(shape)} of {dtype}" for shape, dtype in sorted(kinds, key=str)[:2])
        raise InputError(
            f"{name} of a dataset must have one shape and type, got {shown}. Resize or pad them."
        )
    return torch.cat(parts)


def _tensors(x: Any) -> list[Tensor]:
    if isinstance(x, Mapping):
        return list(x.values())
    return list(x) if isinstance(x, tuple) else [x]


def _mapped(x: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return inputs with each tensor changed."""
    if isinstance(x, Mapping):
        return {name: change(tensor) for name, tensor in x.items()}
    return tuple(change(tensor) for tensor in x) if isinstance(x, tuple) else change(x)
