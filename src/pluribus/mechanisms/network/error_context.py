"""Errors raised inside the user's network: the layer, its inputs, and a remedy."""

import re
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from torch import Tensor, nn

from pluribus.errors import InputError
from pluribus.mechanisms.network.inputs import Inputs

NO_VARIANCE = "Expected more than 1 value per channel when training"
"""What BatchNorm says of a training batch of one vector."""
INDICES = "scalar types: Long, Int"
"""What an embedding says of indices that are floats."""
TYPES = re.compile(r"dtype|scalar type|Input type|same type")
SHAPES = re.compile(r"shape|size|channel|dimension|[0-9]D", re.IGNORECASE)
SHOWN = 3


def explain_failure(module: nn.Module, own: nn.Module, inputs: Inputs, error: Exception) -> str:
    """Describe an error from inside the network, with the layer that raised it and what that layer got.

    Args:
        module: What ran.
        own: The user's network, which may be a part of it: names are those that the user knows.
        inputs: What it was called with.
        error: What was raised.
    """
    names = {id(layer): name for root in (module, own) for name, layer in root.named_modules()}
    place, got = "the network", str(inputs)
    for frame in _frames(error.__traceback__):
        layer = frame.get("self")
        if isinstance(layer, nn.Module) and names.get(id(layer)):
            tensors = [value for key, value in frame.items() if key != "self" and isinstance(value, Tensor)]
            place = f"layer {names[id(layer)]} ({type(layer).__name__})"
            got = str(Inputs(tuple(tensors[:1]), {}))
    reason = (str(error).strip() or repr(error)).splitlines()[0].removesuffix(".")
    called = f"The network was called with {inputs}; {_remedy(module, inputs, reason)}."
    return f"{place} failed, on {got}: {reason}. {called}"


def _remedy(module: nn.Module, inputs: Inputs, reason: str) -> str:
    weight = next((one for one in module.parameters() if one.dtype.is_floating_point), None)
    if reason.startswith(NO_VARIANCE):
        return "train on at least two samples at a time: leave out a last batch of one (drop_last=True)"
    if weight is not None and any(tensor.device != weight.device for tensor in inputs.tensors()):
        return f"move inputs to {weight.device}, where the network is"
    if INDICES in reason:
        return "indices must be whole numbers: x.long()"
    if weight is not None and TYPES.search(reason):
        if not any(tensor.is_floating_point() for tensor in inputs.tensors()):
            return "images must be floating point: x.float() / 255"
        return f"give inputs the precision of the network: x.to({weight.dtype})"
    if SHAPES.search(reason):
        return "check shapes and the number of channels; axis 0 is the batch, and a single sample is x[None]"
    return "check that it takes these"


def blame_inputs(inputs: Inputs, error: InputError) -> None:
    """Raise an error that names the inputs, if they are not finite and `error` is about such outputs."""
    if "must be finite" not in str(error):
        return
    # Tensors without values, on the device meta, cannot be looked at.
    if any(tensor.is_meta for tensor in inputs.tensors()):
        return
    batch, lost = inputs.batch, set[int]()
    for tensor in inputs.tensors():
        if tensor.is_floating_point() and tensor.ndim and len(tensor) == batch:
            samples = (~tensor.isfinite()).reshape(batch, -1).any(1)
            lost.update(samples.nonzero().flatten().tolist())
    if not lost:
        return
    some = ", ".join(map(str, sorted(lost)[:SHOWN])) + ", …" * (len(lost) > SHOWN)
    raise InputError(
        f"inputs must be finite, however: {len(lost)} of {batch} samples hold NaN or infinity "
        f"({some}, from 0). Leave them out, or fill in what is missing."
    ) from error


def _frames(traceback: TracebackType | None) -> Iterator[dict[str, Any]]:
    while traceback is not None:
        yield traceback.tb_frame.f_locals
        traceback = traceback.tb_next
