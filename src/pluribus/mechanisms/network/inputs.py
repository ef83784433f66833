"""One call of the network: the positional and keyword inputs of one batch, checked and cut."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pluribus.errors import InputError

PLAIN = bool | int | float | str | None
"""Inputs that are shown as they are."""


@dataclass(frozen=True)
class Inputs:
    """The arguments of `network(*args, **kwargs)`; the batch is axis 0 of their tensors."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, value: Any) -> "Inputs":
        """A tensor is one input, a tuple several, a mapping keyword inputs."""
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
            f"however: {type(value).__name__}. Convert arrays with torch.as_tensor(...)."
        )

    @property
    def keywords(self) -> dict[str, Any]:
        """The keyword inputs as a new dict."""
        return dict(self.kwargs or {})

    def tensors(self) -> Iterator[Tensor]:
        """All tensors among the inputs, positional ones first."""
        yield from (value for value in (*self.args, *self.keywords.values()) if isinstance(value, Tensor))

    @property
    def batch(self) -> int:
        """The number of samples: the size of axis 0 of the first tensor; refuses an empty batch."""
        for tensor in self.tensors():
            if tensor.ndim == 0:
                continue
            if tensor.shape[0] == 0:
                raise InputError(
                    f"a batch must have at least one sample, however: shape {tuple(tensor.shape)}. "
                    "Skip empty batches."
                )
            return tensor.shape[0]
        raise InputError("inputs must hold a tensor with a batch axis, however: there is none. Pass tensors.")

    def map(self, change: Callable[[Tensor], Tensor]) -> "Inputs":
        """The same call with every tensor that has the batch axis changed."""
        batch = self.batch
        return self.each(lambda t: change(t) if t.ndim > 0 and t.shape[0] == batch else t)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Inputs":
        """The same call with every tensor changed."""

        def changed(value: Any) -> Any:
            return change(value) if isinstance(value, Tensor) else value

        return Inputs(
            tuple(changed(value) for value in self.args),
            {name: changed(value) for name, value in self.keywords.items()},
        )

    def take(self, samples: Tensor | slice) -> "Inputs":
        """The same call on some of its samples."""
        return self.map(lambda tensor: tensor[samples])

    @classmethod
    def joined(cls, several: Sequence["Inputs"]) -> "Inputs":
        """One call on the samples of several: the same call again and again, or parts of one batch."""
        batch, repeated = several[0].batch, all(one is several[0] for one in several)

        def join(*values: Any) -> Any:
            first = values[0]
            has_batch = isinstance(first, Tensor) and first.ndim > 0 and first.shape[0] == batch
            # What all parts have in common is no batch, even where it is as long as one of them.
            parted = repeated or any(value is not first for value in values)
            return torch.cat(values) if has_batch and parted else first

        return cls(
            tuple(join(*values) for values in zip(*(one.args for one in several), strict=True)),
            {name: join(*(one.keywords[name] for one in several)) for name in several[0].keywords},
        )

    def to(self, device: torch.device) -> "Inputs":
        """The same call on another device."""
        return self.each(lambda tensor: tensor.to(device))

    def copy(self) -> "Inputs":
        """The same call with tensors of its own, for code that writes into its inputs."""
        return self.each(torch.clone)

    def doubled(self) -> "Inputs":
        """The same call with every sample twice."""
        return self.map(lambda tensor: torch.cat([tensor, tensor]))

    def versions(self) -> list[int]:
        """How often each tensor was written into; those of inference mode do not count."""
        return [-1 if tensor.is_inference() else tensor._version for tensor in self.tensors()]

    def chunks(self, size: int | None) -> Iterator["Inputs"]:
        """The same call in pieces of at most `size` samples; None is one piece."""
        batch = self.batch
        for start in range(0, batch, size or batch):
            yield self.take(slice(start, start + (size or batch)))

    def __str__(self) -> str:
        def show(value: Any) -> str:
            if isinstance(value, Tensor):
                place = "" if value.device.type == "cpu" else f" on {value.device}"
                return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{place}"
            return repr(value) if isinstance(value, PLAIN) else type(value).__name__

        named = (f"{name}={show(value)}" for name, value in self.keywords.items())
        return f"({', '.join([*map(show, self.args), *named])})"


def inputs_of_batch(batch: Any, forward: Callable[..., Any]) -> Inputs:
    """The inputs in one batch of a loader, without its targets.

    A sequence with one entry more than `forward` needs ends with the targets. Of a mapping, the
    entries that `forward` accepts are kept, `labels` left out.
    """
    parameters = inspect.signature(forward).parameters.values()
    if isinstance(batch, Mapping):
        any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        accepted = {parameter.name for parameter in parameters} - {"labels"}
        return Inputs((), {k: v for k, v in batch.items() if k in accepted or (any_name and k != "labels")})
    if isinstance(batch, list | tuple):
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        needed = [p for p in parameters if p.kind in positional and p.default is p.empty]
        with_targets = len(batch) == max(1, len(needed)) + 1
        return Inputs(tuple(batch[:-1] if with_targets else batch), {})
    return Inputs.of(batch)


def batches_of(x: Any, forward: Callable[..., Any], device: torch.device) -> Iterator[Inputs]:
    """The inputs that a user gave at once, or those of every batch of a loader, which go to a device."""
    if isinstance(x, Tensor | tuple | Mapping) or not isinstance(x, Iterable):
        yield Inputs.of(x)
        return
    for batch in x:
        yield inputs_of_batch(batch, forward).to(device)
