"""One call of the network: the positional and keyword inputs of one batch, checked and cut."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.mechanisms.network.torch_private import write_count

PLAIN = bool | int | float | str | None
"""Inputs that are shown as they are."""


@dataclass(frozen=True)
class Inputs:
    """The arguments of `network(*args, **kwargs)`; the batch is axis 0 of their tensors.

    Attributes:
        args: The positional ones.
        kwargs: The others, by name.
        free: Of an example, by position among its tensors, the axes beside the batch that may have any size.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    free: Mapping[int, frozenset[int]] | None = None

    @classmethod
    def of(cls, value: Any) -> "Inputs":
        """Return the inputs that a user gave.

        Args:
            value: A tensor is one input, a tuple several, a mapping keyword inputs.

        Raises:
            InputError: It is something else, such as an array.

        Example:
            >>> str(Inputs.of((torch.zeros(2, 3), {"scale": 2})))
            '(float32[2, 3], dict)'
        """
        if isinstance(value, Inputs):
            return value
        if isinstance(value, Mapping):
            return cls((), dict(value))
        if isinstance(value, tuple):
            return cls(value, {})
        if isinstance(value, Tensor):
            return cls((value,), {})
        raise InputError(
            "inputs must be a tensor, a tuple of tensors or a dict of keyword tensors, "
            f"got {type(value).__name__}. Convert arrays with torch.as_tensor(...)."
        )

    @property
    def keywords(self) -> dict[str, Any]:
        """Return the keyword inputs as a new dict."""
        return dict(self.kwargs or {})

    def tensors(self) -> Iterator[Tensor]:
        """Yield all tensors among the inputs, positional ones first."""
        for value in (*self.args, *(self.kwargs or {}).values()):
            if isinstance(value, Tensor):
                yield value

    @cached_property
    def batch(self) -> int:
        """Return the number of samples: the size of axis 0 of the first tensor that has one.

        Raises:
            InputError: There is no such tensor, or it is empty.
        """
        for tensor in self.tensors():
            if tensor.ndim == 0 or tensor.layout is not torch.strided:
                continue
            if tensor.shape[0] == 0:
                raise InputError(
                    f"a batch must have at least one sample, got shape {tuple(tensor.shape)}. "
                    "Skip empty batches."
                )
            return tensor.shape[0]
        raise InputError(
            f"inputs must hold a dense tensor with a batch axis, got {self}. "
            "Pass tensors, sparse ones as x.to_dense()."
        )

    def map(self, change: Callable[[Tensor], Tensor]) -> "Inputs":
        """Return the same call with every tensor that has the batch axis changed.

        Args:
            change: Takes and returns a tensor.
        """
        batch = self.batch
        return self.each(lambda tensor: change(tensor) if _has_batch(tensor, batch) else tensor)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Inputs":
        """Return the same call with every tensor changed.

        Args:
            change: Takes and returns a tensor.
        """

        def changed(value: Any) -> Any:
            return change(value) if isinstance(value, Tensor) else value

        return Inputs(
            tuple(changed(value) for value in self.args),
            {name: changed(value) for name, value in self.keywords.items()},
            self.free,
        )

    def take(self, samples: Tensor | slice) -> "Inputs":
        """Return the same call on some of its samples.

        Args:
            samples: Their positions in the batch.
        """
        return self.map(lambda tensor: tensor[samples])

    @classmethod
    def joined(cls, several: Sequence["Inputs"]) -> "Inputs":
        """Return one call on the samples of several.

        Args:
            several: The same call again and again, or parts of one batch.
        """
        batch, repeated = several[0].batch, all(one is several[0] for one in several)

        def join(values: Sequence[Any]) -> Any:
            first = values[0]
            # What all parts have in common is no batch, even where it is as long as one of them.
            parted = repeated or any(value is not first for value in values)
            return torch.cat(list(values)) if parted and _has_batch(first, batch) else first

        args = [join(values) for values in zip(*(one.args for one in several), strict=True)]
        keywords = {}
        for name in several[0].keywords:
            keywords[name] = join([one.keywords[name] for one in several])
        return cls(tuple(args), keywords)

    def to(self, device: torch.device) -> "Inputs":
        """Return the same call on another device; inputs that are no tensors stay."""
        return self.each(lambda tensor: tensor.to(device))

    def copy(self) -> "Inputs":
        """Return the same call with tensors of its own, for code that writes into its inputs."""
        return self.each(torch.clone)

    def doubled(self) -> "Inputs":
        """Return the same call with every sample twice.

        One sample is too few for batch norm in train mode.
        """
        return self.map(lambda tensor: torch.cat([tensor, tensor]))

    def versions(self) -> list[int]:
        """Return how often each tensor was written into; -1 for those of inference mode."""
        return [write_count(tensor) for tensor in self.tensors()]

    def chunks(self, size: int | None) -> Iterable["Inputs"]:
        """Return the same call in pieces.

        Args:
            size: The most samples of a piece; None is one piece.
        """
        batch = self.batch
        step = size or batch
        if step >= batch:
            # Slicing a whole batch takes longer than a layer of a small network.
            return (self,)

        def piece(start: int) -> "Inputs":
            return self.take(slice(start, start + step))

        # One at a time: a long batch in pieces of one sample would be as many tensors.
        return map(piece, range(0, batch, step))

    def __str__(self) -> str:
        shown = [_show(value) for value in self.args]
        shown += [f"{name}={_show(value)}" for name, value in self.keywords.items()]
        return f"({', '.join(shown)})"


def _has_batch(value: Any, batch: int) -> bool:
    """Return whether a value is a tensor with the batch axis.

    A mask or a table of another size has none, and is the same for all samples. So is a sparse tensor, such
    as the adjacency of a graph: torch cannot cut it into samples.
    """
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return False
    return value.ndim > 0 and value.shape[0] == batch


def _show(value: Any) -> str:
    """Return an input in words: `float32[2, 3]`, a plain value, or a type.

    The device is named where it is not the CPU.
    """
    if isinstance(value, Tensor):
        place = "" if value.device.type == "cpu" else f" on {value.device}"
        layout = "" if value.layout is torch.strided else f"{str(value.layout).removeprefix('torch.')} "
        return f"{layout}{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{place}"
    return repr(value) if isinstance(value, PLAIN) else type(value).__name__
