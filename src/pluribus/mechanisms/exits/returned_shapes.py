"""Returned shapes: what the modules of a network return, seen by running the example once."""

from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from pluribus.mechanisms.network.dry_run import accepting, dry_run
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.outputs import first_tensor, select_output


def returned_shapes(network: Network) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]]:
    """Return the shapes of what modules that run once return, and of the prediction.

    A graph does not tell what a module returns, only which values are read outside of it. So the example
    runs once, in eval mode.
    """
    seen: dict[nn.Module, list[tuple[int, ...]]] = {}

    def record(layer: nn.Module, _: Any, returned: Any) -> None:
        value = first_tensor(returned)
        seen.setdefault(layer, []).append(() if value is None else tuple(value.shape))

    module, example = network.module, network.example
    with ExitStack() as hooks:
        for layer in module.modules():
            handle = layer.register_forward_hook(record)
            hooks.callback(handle.remove)
        with accepting(example), dry_run(module, False), torch.no_grad():
            returned = module(*example.args, **example.keywords)
    shapes = {}
    for name, layer in module.named_modules():
        calls = seen.get(layer, [])
        # An empty shape belongs to a scalar or to no tensor: neither has a batch.
        if len(calls) == 1 and calls[0]:
            shapes[name] = calls[0]
    return shapes, tuple(select_output(returned, network.output).shape)
