"""Batches of a loader, as users have them, and the inputs of the network in them."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pluribus.mechanisms.network.inputs import Inputs


def inputs_of_batch(batch: Any, forward: Callable[..., Any]) -> Inputs:
    """Return the inputs in one batch of a loader, without its targets.

    A sequence with one entry more than `forward` needs ends with the targets, and so does a mapping with one
    entry behind it. Of a mapping, the entries that `forward` accepts are kept, `labels` left out.

    Args:
        batch: What the loader gave.
        forward: Of the network.
    """
    parameters = list(inspect.signature(forward).parameters.values())
    if isinstance(batch, Mapping):
        return Inputs((), _accepted(batch, parameters))
    if isinstance(batch, list | tuple):
        # A batch of keyword inputs with targets, such as (tokens and masks, labels).
        if len(batch) == 2 and isinstance(batch[0], Mapping):
            return Inputs((), _accepted(batch[0], parameters))
        # Several inputs with targets, such as ((image, age), label); loaders make lists of tuples.
        if len(batch) == 2 and isinstance(batch[0], list | tuple):
            return Inputs(tuple(batch[0]), {})
        # A network whose inputs are all optional, as those of Hugging Face, still takes one.
        needed = max(1, len(_required(parameters)))
        with_targets = len(batch) == needed + 1
        return Inputs(tuple(batch[:-1] if with_targets else batch), {})
    return Inputs.of(batch)


def accepted_by(inputs: Inputs, forward: Callable[..., Any]) -> Inputs:
    """Return the inputs of a sample without the keyword entries that `forward` does not accept.

    Samples of datasets have more than inputs: ids, and the text of which tokens were made.
    """
    if not inputs.keywords:
        return inputs
    parameters = list(inspect.signature(forward).parameters.values())
    tensors = {name: value for name, value in inputs.keywords.items() if isinstance(value, Tensor)}
    return Inputs(inputs.args, _accepted(tensors, parameters))


def _accepted(batch: Mapping[str, Any], parameters: Sequence[inspect.Parameter]) -> dict[str, Any]:
    """Return the entries of a batch that a function with these parameters accepts.

    Labels are left out even where it accepts them: with these, Hugging Face models compute a loss too.
    """
    given = {name: value for name, value in batch.items() if name != "labels"}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return given
    accepted = {parameter.name for parameter in parameters}
    return {name: value for name, value in given.items() if name in accepted}


def _required(parameters: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the positional parameters that a call cannot be without."""
    required = []
    for parameter in parameters:
        positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if positional and parameter.default is parameter.empty:
            required.append(parameter)
    return required


def _is_loader(x: Any) -> bool:
    """Return whether a value gives batches one after the other, and is no input itself."""
    return isinstance(x, Iterable) and not isinstance(x, Tensor | tuple | Mapping)


def count_samples(x: Any) -> int | None:
    """Return how many samples `batches_of` will yield in all; None for a loader, which may not know."""
    return None if _is_loader(x) else Inputs.of(x).batch


def batches_of(x: Any, forward: Callable[..., Any], device: torch.device) -> Iterator[Inputs]:
    """Yield the inputs that a user gave at once, or those of every batch of a loader.

    Args:
        x: Inputs, or a loader of batches.
        forward: Of the network, which tells targets from inputs.
        device: Where batches of a loader go; inputs stay where the user put them.
    """
    if not _is_loader(x):
        yield Inputs.of(x)
        return
    for batch in x:
        yield inputs_of_batch(batch, forward).to(device)


class Batches:
    """The inputs of a loader, which may be gone through several times.

    Args:
        loader: Batches as a user has them.
        forward: The `forward` of the network.
        device: Where inputs go.
        curvature: Returns how the loss curves in outputs `[batch, outputs]`, `[batch, outputs, outputs]`, for
            methods that need no targets but the kind of loss.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        forward: Callable[..., Any],
        device: torch.device,
        curvature: Callable[[Tensor], Tensor],
    ) -> None:
        self.loader, self.forward, self.device, self.curvature = loader, forward, device, curvature

    def __iter__(self) -> Iterator[Inputs]:
        return batches_of(self.loader, self.forward, self.device)
