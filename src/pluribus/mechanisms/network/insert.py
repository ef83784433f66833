"""Putting a layer before a site, and proving that it runs.

The layer is attached as a pre-hook and the site stays what it is: its names, its tensors and its
attributes are still there for code that reads them (`self.projection.weight.dtype`), a layer in two
places stays one layer, and the root may be a site.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

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

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        done: dict[int, Tensor] = {}
        # Query, key and value; of all other layers the first input, and not an RNN's state or a mask.
        reach = 3 if isinstance(layer, nn.MultiheadAttention) else 1

        def each(value: Any) -> Any:
            nonlocal reach
            if not reach:
                return value
            if isinstance(value, PackedSequence):
                return value._replace(data=each(value.data))
            if not isinstance(value, Tensor) or not value.is_floating_point():
                return value
            reach -= 1
            if id(value) not in done:
                self.calls += 1
                done[id(value)] = self.function(layer, len(done), value)
            return done[id(value)]

        return tuple(map(each, args)), {name: each(value) for name, value in kwargs.items()}


def insert(before: Mapping[Site, Function]) -> dict[Site, Inserted]:
    """Put a function before the input of each site; call it on a copy of the user's network."""
    inserted = {site: Inserted(function) for site, function in before.items()}
    for site, hook in inserted.items():
        site.module.register_forward_pre_hook(hook, with_kwargs=True)
    return inserted


def prove(module: nn.Module, inserted: Mapping[Site, Inserted], example: Inputs) -> None:
    """Raise for an insertion that is not called when the network runs in train and in eval mode.

    Counting happens in the inserted function itself: a hook that only looked would change the path.
    """
    example = example.doubled() if example.batch == 1 else example
    for training in (True, False):
        for hook in inserted.values():
            hook.calls = 0
        with accepting(example), dry_run(module, training), torch.no_grad():
            module(*example.args, **example.keywords)
        for site, hook in inserted.items():
            if not hook.calls:
                raise ConversionError(
                    f"every converted layer must run on numbers: {site} is not called in "
                    f"{'train' if training else 'eval'} mode. Leave it out with exclude={site.name!r}."
                )
