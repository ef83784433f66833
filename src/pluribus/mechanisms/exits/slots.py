"""Slots: layers that read several inputs at once, and one that makes outputs for each.

A first layer gets, in place of its input, the inputs of all slots side by side on the axis of features; an
embedding looks every slot's numbers up in rows of its own and adds what it finds. The user's code around
these layers runs as it did: once for the first slot, and for every other as far as the first layers.
"""

from typing import Any

import torch
from torch import Tensor, nn

from pluribus.errors import InputError


class Reached(Exception):
    """All first layers have been reached: the rest of the network need not run."""


class Entry:
    """What the first layers of a network get; hooks of all of them share one.

    Stays as it is until the next run, because code that runs again during backward asks again.

    Args:
        slots: How many inputs the network takes at once.
        layers: How many first layers there are.

    Attributes:
        capturing: Whether what comes is kept for a slot.
        kept: For each slot behind the first, by layer, what came; empty where all get the same.
    """

    def __init__(self, slots: int, layers: int) -> None:
        self.slots, self.layers = slots, layers
        self.capturing = False
        self.kept: list[dict[int, Tensor]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> "Entry":
        copied = memo[id(self)] = Entry(self.slots, self.layers)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "capturing": False, "kept": []}

    def receive(self, layer: int, value: Tensor) -> list[Tensor]:
        """What all slots bring to a layer, the first slot's value given."""
        if self.capturing:
            self.kept[-1][layer] = value
            if len(self.kept[-1]) == self.layers:
                raise Reached
        if self.capturing or not self.kept:
            return [value] * self.slots
        try:
            return [value, *(slot[layer] for slot in self.kept)]
        except KeyError:
            raise InputError(
                "the inputs of all slots must be of one kind, however: a layer that reads the first slot's "
                "reads none of another's. Pass the same arguments for every slot."
            ) from None


class Joined:
    """A pre-hook that gives a first layer the inputs of all slots.

    Args:
        entry: Where they come from.
        number: Of the layer.
    """

    def __init__(self, entry: Entry, number: int) -> None:
        self.entry, self.number = entry, number

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        name = next(iter(kwargs), "") if not args else ""
        values = self.entry.receive(self.number, args[0] if args else kwargs[name])
        if isinstance(layer, nn.Embedding):
            size = layer.num_embeddings // self.entry.slots
            rows = [_own_rows(ids, slot * size, layer.padding_idx) for slot, ids in enumerate(values)]
            joined = torch.stack(rows, dim=-1)
        else:
            axis = -1 - len(layer.kernel_size) if isinstance(layer, nn.modules.conv._ConvNd) else -1
            joined = torch.cat(values, dim=axis)
        return ((joined, *args[1:]), kwargs) if args else (args, {**kwargs, name: joined})


def _own_rows(ids: Tensor, first: int, padding: int | None) -> Tensor:
    """A slot's rows of an embedding; padding, which learns nothing, is one row for all slots."""
    return ids + first if padding is None else torch.where(ids == padding, ids, ids + first)


class Summed:
    """A hook that adds what an embedding found for all slots."""

    def __call__(self, layer: nn.Module, args: Any, found: Tensor) -> Tensor:
        return found.sum(-2)


def widen_first(layer: nn.Module, slots: int) -> None:
    """Makes a layer read `slots` inputs; given the same one in every slot it computes what it did."""
    if isinstance(layer, nn.Embedding):
        layer.num_embeddings *= slots
        _change(layer, "weight", lambda weight: (weight / slots).repeat(slots, 1))
    elif isinstance(layer, nn.RNNBase):
        layer.input_size *= slots
        for name in [name for name in layer._parameters if name.startswith("weight_ih_l0")]:
            _change(layer, name, lambda weight: (weight / slots).repeat(1, slots))
    else:
        name = "in_features" if isinstance(layer, nn.Linear) else "in_channels"
        setattr(layer, name, slots * getattr(layer, name))
        _change(layer, "weight", lambda weight: torch.cat([weight / slots] * slots, dim=1))


def merge_first(layer: nn.Module, slots: int) -> None:
    """Makes a layer read one input, as it did the same one in all of its slots."""
    if isinstance(layer, nn.Embedding):
        layer.num_embeddings //= slots
        _change(layer, "weight", lambda weight: _merged_table(weight, slots, layer.padding_idx))
        return
    name = "input_size" if isinstance(layer, nn.RNNBase) else "in_channels"
    name = "in_features" if isinstance(layer, nn.Linear) else name
    setattr(layer, name, getattr(layer, name) // slots)
    for weight in [name for name in layer._parameters if name.startswith("weight_ih_l0") or name == "weight"]:
        _change(layer, weight, lambda weight: weight.unflatten(1, (slots, -1)).sum(1))


def _merged_table(weight: Tensor, slots: int, padding: int | None) -> Tensor:
    merged = torch.unflatten(weight, 0, (slots, -1)).sum(0)
    if padding is not None:  # all slots read the first one's
        merged[padding] = slots * weight[padding]
    return merged


def widen_last(layer: nn.Module, slots: int) -> None:
    """Makes a layer compute its outputs for every slot, one slot after the other."""
    name = "out_features" if isinstance(layer, nn.Linear) else "out_channels"
    setattr(layer, name, slots * getattr(layer, name))
    for tensor in ("weight", "bias"):
        if getattr(layer, tensor) is not None:
            _change(layer, tensor, lambda value: torch.cat([value] * slots))


def _change(layer: nn.Module, name: str, change: Any) -> None:
    old = getattr(layer, name)
    with torch.no_grad():
        setattr(layer, name, nn.Parameter(change(old).contiguous(), old.requires_grad))
