"""Skeletons: the user's code with exchangeable tensors, lent to one call at a time.

A `Skeleton` is a copy of the user's module without tensors; filled with the tensors of a member it is
that member. `Skeletons` is a pool of them. A call borrows a skeleton and nobody else uses it meanwhile, so
that threads never see each other's tensors. With gradients the loan lasts as long as the graph of the
output, because backward may run the code again (gradient checkpointing) and must find the same tensors;
after `torch.func.functional_call` it would find the wrong ones.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pluribus.errors import InputError
from pluribus.mechanisms.members.tree import named_tensors
from pluribus.mechanisms.network.network import computed
from pluribus.mechanisms.network.torch_private import buffer_table, flat_weights, parameter_table

Modes = tuple[bool, ...]
"""`training` of every module of a network, in the order of `Module.modules()`."""

IDLE_SKELETONS = 16
"""Skeletons kept per mode when nobody uses them: more threads than that at once build new ones."""


def blank(module: nn.Module) -> nn.Module:
    """Return a copy of the module's code whose tensors have shapes and no values."""

    def empty(tensor: Tensor) -> Tensor:
        value = torch.empty_like(tensor, device="meta", requires_grad=False)
        return nn.Parameter(value, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else value

    blanks = {id(tensor): empty(tensor) for tensor in named_tensors(module).values()}
    return copy.deepcopy(module, computed(module) | blanks)


def materialise(module: nn.Module, values: Mapping[str, Tensor]) -> nn.Module:
    """Return a plain module of the user's class with copies of these tensors."""

    def copied(own: Tensor, value: Tensor) -> Tensor:
        value = value.detach().clone()
        return nn.Parameter(value, own.requires_grad) if isinstance(own, nn.Parameter) else value

    own = named_tensors(module)
    return copy.deepcopy(module, {id(own[name]): copied(own[name], values[name]) for name in own})


class Skeleton:
    """The user's code with exchangeable tensors; shared layers and tied tensors stay so.

    Args:
        module: Made by `blank`; copied.
        modes: The mode of each of its modules.
    """

    def __init__(self, module: nn.Module, modes: Modes | None = None) -> None:
        self.module = copy.deepcopy(module)
        if modes is not None:
            set_modes(self.module, modes)
        names = {id(tensor): name for name, tensor in named_tensors(self.module).items()}
        self._slots: list[tuple[Any, Any, str]] = []
        self._buffer_slots: list[tuple[dict[str, Tensor | None], str, str]] = []
        self._saved = set(self.module.state_dict())
        for layer in self.module.modules():
            flat = flat_weights(layer)  # an RNN reads this list, not its parameters
            self._add_slots(parameter_table(layer), list(parameter_table(layer)), names)
            self._add_slots(buffer_table(layer), list(buffer_table(layer)), names)
            self._add_slots(flat, list(range(len(flat))), names)
            for key, buffer in buffer_table(layer).items():
                if buffer is not None:
                    self._buffer_slots.append((buffer_table(layer), key, names[id(buffer)]))

    def _add_slots(self, container: Any, keys: Sequence[Any], names: Mapping[int, str]) -> None:
        for key in keys:
            name = names.get(id(container[key]))
            if name is not None:
                self._slots.append((container, key, name))

    def fill(self, values: Mapping[str, Tensor]) -> nn.Module:
        """Return the module with these tensors in place of those it had."""
        for container, key, name in self._slots:
            container[key] = values[name]
        return self.module

    def collect(self, values: Mapping[str, Tensor]) -> None:
        """Write buffers that the code assigned anew back into the tensors it was filled with."""
        for container, key, name in self._buffer_slots:
            new, old = container[key], values[name]
            if new is None or new is old:
                continue
            if new.shape == old.shape:
                with torch.no_grad():
                    old.copy_(new)
            elif name in self._saved:  # others are caches, and the code's own affair
                raise InputError(
                    f"{name} must keep its shape {tuple(old.shape)}, which is saved, however: the network "
                    f"assigned {tuple(new.shape)}. Register it with persistent=False."
                )

    def buffer_names(self) -> set[str]:
        """Return the names of the buffers."""
        return {name for _, _, name in self._buffer_slots}


class Loan:
    """A skeleton lent to one call; returned when the loan is collected, with the call or with its graph."""

    __slots__ = ("_idle", "skeleton")

    def __init__(self, idle: list[Skeleton], skeleton: Skeleton) -> None:
        self._idle, self.skeleton = idle, skeleton

    def keep_with(self, output: Tensor) -> None:
        """Extend the loan to the life of the graph of `output`."""
        if output.grad_fn is not None:
            output.grad_fn.metadata[Loan] = self  # type: ignore[index]

    def __del__(self) -> None:
        # Any thread may run this, at any time: list.append is atomic, a lock could be held already.
        if len(self._idle) < IDLE_SKELETONS:
            self._idle.append(self.skeleton)


class Skeletons:
    """A pool of skeletons for each combination of modes.

    Args:
        module: Made by `blank`.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._idle: dict[Modes, list[Skeleton]] = {}

    def borrow(self, modes: Modes) -> Loan:
        """Return a skeleton in these modes that nobody else uses."""
        idle = self._idle.setdefault(modes, [])
        try:
            skeleton = idle.pop()  # atomic, as append is
        except IndexError:
            skeleton = Skeleton(self.module, modes)
        return Loan(idle, skeleton)

    def __getstate__(self) -> dict[str, Any]:
        # Skeletons hold tensors of past runs, which no copy needs.
        return {"module": self.module, "_idle": {}}


def modes_of(module: nn.Module) -> Modes:
    """Return the mode of every module."""
    return tuple(layer.training for layer in module.modules())


def set_modes(module: nn.Module, modes: Modes) -> None:
    """Put every module into its mode."""
    for layer, mode in zip(module.modules(), modes, strict=True):
        layer.training = mode
