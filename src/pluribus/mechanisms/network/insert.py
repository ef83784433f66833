"""Putting a layer before a site, and proving that it runs.

The layer is attached as a pre-hook and the site stays what it is: its names, its tensors and its
attributes are still there for code that reads them (`self.projection.weight.dtype`), a layer in two
places stays one layer, and the root may be a site.
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.hooks import RemovableHandle

from pluribus.errors import ConversionError
from pluribus.mechanisms.network.dry_run import accepting, dry_run
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.layers import Site

Function = Callable[[nn.Module, int, Tensor], Tensor]
"""Takes a layer, a position among its distinct inputs and that input; returns what the layer gets instead."""


class Inserted:
    """A function of the floating-point inputs of a layer, put before it; counts its calls.

    Inputs that are one tensor (query, key and value of self-attention) stay one tensor.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.calls = 0
        self._handle: RemovableHandle | None = None

    def attach(self, layer: nn.Module) -> None:
        """Put the function before a layer."""
        self._handle = layer.register_forward_pre_hook(self, with_kwargs=True)

    def detach(self) -> None:
        """Take the function away from its layer again."""
        if self._handle is not None:
            self._handle.remove()
        self._handle = None

    def __getstate__(self) -> dict[str, Any]:
        # The handle of a copy would refer to the hooks of the module that was copied.
        return {**vars(self), "_handle": None}

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        call = _Call(self, layer)
        changed = tuple(call.change(value) for value in args)
        return changed, {name: call.change(value) for name, value in kwargs.items()}


class _Call:
    """One call of an inserted function.

    An object and no nested function: one that calls itself is a circle of references, and would keep its
    tensors alive until Python looks for such circles.

    Args:
        inserted: The function that is called.
        layer: The layer before which it stands.
    """

    def __init__(self, inserted: Inserted, layer: nn.Module) -> None:
        self.inserted, self.layer = inserted, layer
        self.done: dict[int, Tensor] = {}
        # Query, key and value; of all other layers the first input, and not an RNN's state or a mask.
        self.reach = 3 if isinstance(layer, nn.MultiheadAttention) else 1

    def change(self, value: Any) -> Any:
        """Return what the layer gets in place of one of its inputs."""
        if not self.reach:
            return value
        if isinstance(value, PackedSequence):
            return value._replace(data=self.change(value.data))
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        self.reach -= 1
        if id(value) not in self.done:
            self.inserted.calls += 1
            self.done[id(value)] = self.inserted.function(self.layer, len(self.done), value)
        return self.done[id(value)]


def insert(before: Mapping[Site, Function]) -> dict[Site, Inserted]:
    """Put a function before the input of each site; call it on a copy of the user's network."""
    inserted = {site: Inserted(function) for site, function in before.items()}
    for site, hook in inserted.items():
        hook.attach(site.module)
    return inserted


def prove(module: nn.Module, inserted: Mapping[Site, Inserted], example: Inputs) -> None:
    """Raise for an insertion that is not called when the network runs in train and in eval mode."""
    for site, mode in find_uncalled(module, inserted, example).items():
        refuse_uncalled(site, mode)


def refuse_uncalled(site: Site, mode: str) -> NoReturn:
    """Raise for a layer that the network does not call.

    Args:
        site: The layer.
        mode: The mode in which it is not called, `train` or `eval`.
    """
    raise ConversionError(
        f"every converted layer must run on numbers: {site} is not called in {mode} mode. "
        f"Leave it out with exclude={site.name!r}."
    )


def find_uncalled(module: nn.Module, inserted: Mapping[Site, Inserted], example: Inputs) -> dict[Site, str]:
    """Return the layers before which an insertion is not called, each with the mode in which it is not.

    Counting happens in the inserted function itself: a hook that only looked would change the path.
    """
    example = example.doubled() if example.batch == 1 else example
    uncalled: dict[Site, str] = {}
    for training in (True, False):
        for hook in inserted.values():
            hook.calls = 0
        given = example.copy()
        with accepting(example), dry_run(module, training), torch.no_grad():
            module(*given.args, **given.keywords)
        for site, hook in inserted.items():
            if not hook.calls:
                uncalled.setdefault(site, "train" if training else "eval")
    return uncalled
