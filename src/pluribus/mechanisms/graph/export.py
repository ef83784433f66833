"""The network's data flow, read with `torch.export`; every operation knows its module and source line."""

import itertools
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from pluribus.errors import UnreadableError
from pluribus.mechanisms.graph.operation import TORCH, Graph
from pluribus.mechanisms.graph.results import without_objects
from pluribus.mechanisms.network.dry_run import PROCESS, accepting, dry_run, restored, silence
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.torch_private import (
    kept_random_state,
    without_lines,
)

Pick = Callable[[Any], Any]


def read_graph(
    module: nn.Module,
    example: Inputs,
    training: bool,
    any_batch: bool = True,
    pick: Pick = without_objects,
    lines: bool = True,
) -> Graph:
    """Export `module` in one mode; its state and its mode stay as they were.

    Args:
        module: The network.
        example: One input.
        training: The mode.
        any_batch: Whether the batch is dynamic, or has the size of the example.
        pick: Callback (results) -> those that the graph returns; its steps are part of the data flow.
        lines: Whether operations know their lines, which takes a tenth of the time.

    Raises:
        UnreadableError: The network cannot be exported; the message carries torch's reason.
    """
    shapes = _any_batch(example) if any_batch else None
    try:
        with (
            PROCESS,
            restored(module, training),
            silence(),
            kept_random_state(),
            nullcontext() if lines else without_lines(),
        ):
            program = torch.export.export(
                _Root(module, pick), (example.args, example.keywords), dynamic_shapes=shapes, strict=False
            )
    except Exception as error:
        # Inputs that the network refuses are the user's mistake; in training it may need more than these.
        if not training:
            with accepting(example), dry_run(module, training), torch.no_grad():
                module(*example.args, **example.keywords)
        reason = str(error).strip().splitlines()
        raise UnreadableError(
            f"the data flow of {type(module).__name__} cannot be read by torch.export in "
            f"{'train' if training else 'eval'} mode, at {_line(error) or 'no line of yours'}: "
            f"{type(error).__name__}: {reason[0] if reason else ''}"
        ) from error
    first = {parameter: name for name, parameter in module.named_parameters()}
    names = {name: first[p] for name, p in module.named_parameters(remove_duplicate=False)}
    return Graph(program, training, names)


def _any_batch(example: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return for torch.export which axes of the inputs have any size: the batch, and those of the example."""
    batch, free, places = example.batch, example.free or {}, itertools.count()

    def dynamic(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return None
        axes = set(free.get(next(places), ()))
        if value.ndim > 0 and value.shape[0] == batch:
            axes.add(0)
        return dict.fromkeys(axes, torch.export.Dim.AUTO) or None

    # Positional inputs come first among the tensors of a call.
    positional = tuple(map(dynamic, example.args))
    return positional, {name: dynamic(value) for name, value in example.keywords.items()}


class _Root(nn.Module):
    """Hold the network as a child, for torch.export.

    A network that is one layer has a name then. And torch.export mistakes the dynamic shapes of keyword
    inputs (2.13), but here it sees two plain arguments.
    """

    def __init__(self, network: nn.Module, pick: Pick) -> None:
        super().__init__()
        self.network, self.pick = network, pick

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.pick(self.network(*args, **kwargs))


def _line(error: Exception) -> str:
    """Return `file:line` of the innermost frame of the user's code in which an error came up."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    own = [f"{file}:{line}" for file, line in frames if not file.startswith((TORCH, __file__, "<"))]
    return own[-1] if own else ""
