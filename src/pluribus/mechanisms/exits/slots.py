"""Slots: several inputs enter one network at once.

A first layer gets, in place of its input, the inputs of all slots side by side on the axis of features. An
embedding looks the tokens of every slot up in rows of its own and adds what it finds. The user's code around
these layers runs unchanged: once as a whole for the first slot, and for every other slot up to the first
layers. `widening.py` makes layers that take such inputs.
"""

from typing import Any

import torch
from torch import Tensor, nn

from pluribus.errors import InputError
from pluribus.mechanisms.network.torch_private import Convolution


class Reached(Exception):
    """Raised where all first layers have been reached: the rest of the network need not run."""


class Entry:
    """The inputs of all slots at the first layers; the hooks of all these layers share one.

    It changes with the next run alone, because checkpointed code runs again during backward and must
    receive the same inputs.

    Args:
        slots: How many inputs the network takes at once.
        layers: How many first layers there are.

    Attributes:
        capturing: Whether the inputs that come are stored for a slot.
        kept: For each slot behind the first, its input by number of the layer; empty where all slots get
            the same input.
    """

    def __init__(self, slots: int, layers: int) -> None:
        self.slots, self.layers = slots, layers
        self.capturing = False
        self.kept: list[dict[int, Tensor]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> "Entry":
        # The inputs of a run belong to that run: tensors inside of a graph cannot be copied either.
        copied = memo[id(self)] = Entry(self.slots, self.layers)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        # Nothing of a run is pickled, for the reason for which nothing of it is copied.
        return {**vars(self), "capturing": False, "kept": []}

    def receive(self, layer: int, value: Tensor) -> list[Tensor]:
        """Return the inputs of all slots to a layer, given the input that came to it.

        Raises:
            Reached: the inputs of one slot to all layers are stored.
            InputError: another slot brought no input to the layer.
        """
        if self.capturing:
            self._store(layer, value)
        if self.capturing or not self.kept:
            return [value] * self.slots
        values = [value]
        for slot in self.kept:
            if layer not in slot:
                raise InputError(
                    "the inputs of all slots must be of one kind, got a layer that reads the first slot's "
                    "input and none of another's. Pass the same arguments for every slot."
                )
            values.append(slot[layer])
        return values

    def _store(self, layer: int, value: Tensor) -> None:
        self.kept[-1][layer] = value
        # Nothing behind the first layers is needed of this slot.
        if len(self.kept[-1]) == self.layers:
            raise Reached


class Joined:
    """A forward pre-hook that gives a first layer the inputs of all slots.

    Args:
        entry: The inputs of all slots.
        number: Number of the layer.
    """

    def __init__(self, entry: Entry, number: int) -> None:
        self.entry, self.number = entry, number

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if args:
            joined = self._join(layer, self.entry.receive(self.number, args[0]))
            return (joined, *args[1:]), kwargs
        # The user's code may pass the input by name.
        name = next(iter(kwargs), "")
        joined = self._join(layer, self.entry.receive(self.number, kwargs[name]))
        return args, {**kwargs, name: joined}

    def _join(self, layer: nn.Module, values: list[Tensor]) -> Tensor:
        """Put the inputs of all slots side by side."""
        if not isinstance(layer, nn.Embedding):
            return torch.cat(values, dim=_feature_axis(layer))
        size = layer.num_embeddings // self.entry.slots
        rows = []
        for slot, ids in enumerate(values):
            rows.append(_own_rows(ids, slot * size, layer.padding_idx))
        return torch.stack(rows, dim=-1)


def _feature_axis(layer: nn.Module) -> int:
    """Return the axis of a layer's input features."""
    # Counted from the end, because inputs of layers may come without a batch axis.
    return -1 - len(layer.kernel_size) if isinstance(layer, Convolution) else -1


def _own_rows(ids: Tensor, first: int, padding: int | None) -> Tensor:
    """Return the rows of an embedding that a slot reads."""
    if padding is None:
        return ids + first
    # torch knows one padding row, which learns nothing: all slots read that one.
    return torch.where(ids == padding, ids, ids + first)


class Summed:
    """A forward hook that adds what an embedding found for all slots."""

    def __call__(self, layer: nn.Module, args: Any, found: Tensor) -> Tensor:
        return found.sum(-2)
