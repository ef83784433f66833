"""The network's data flow, read with `torch.export`; every operation knows its module and source line."""

import itertools
import os
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from pluribus.errors import UnreadableError
from pluribus.mechanisms.graph.operators import operator_name
from pluribus.mechanisms.graph.results import without_objects
from pluribus.mechanisms.network.dry_run import PROCESS, accepting, dry_run, restored, silence
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.torch_private import (
    kept_random_state,
    module_stack,
    schema_of,
    without_lines,
)

TORCH = os.path.dirname(torch.__file__) + os.sep
# Modes of ours stand between torch and the user's code in a traceback.
OURS = str(Path(__file__).parents[2]) + os.sep

Pick = Callable[[Any], Any]


@dataclass(frozen=True)
class Operation:
    """One operator of the data flow, with the layer and the line of the user's code that run it."""

    node: Node
    operator: str
    layer: str
    source: str

    def argument(self, name: str, default: Any = None) -> Any:
        """Return the operator's argument of that name in its schema; `default` where it has none."""
        schema = schema_of(self.node.target)
        for position, declared in enumerate(schema.arguments if schema else ()):
            if declared.name == name:
                if position < len(self.node.args):
                    return self.node.args[position]
                return self.node.kwargs.get(name, declared.default_value)
        return default


@dataclass(frozen=True)
class Graph:
    """The data flow of one mode, train or eval.

    Attributes:
        program: What `torch.export` made of the network.
        training: The mode.
        first_names: By any name of a parameter, its first name.
    """

    program: torch.export.ExportedProgram
    training: bool
    first_names: dict[str, str]

    def operations(self) -> Iterator[Operation]:
        """Yield all operators, those inside of nested graphs (`torch.no_grad` regions, branches) last."""
        graphs = [part.graph for part in self.program.graph_module.modules() if isinstance(part, GraphModule)]
        for graph in graphs:
            for node in graph.nodes:
                if node.op == "call_function":
                    yield Operation(node, operator_name(node), layer_of(node), _source(node))

    def used(self) -> set[str]:
        """Return the names of the parameters that the data flow reads."""
        names = self.program.graph_signature.inputs_to_parameters
        return {
            self.first_names[names[node.name].removeprefix("network.")]
            for node in self.program.graph.nodes
            if node.name in names and node.users
        }


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


def layer_of(node: Node) -> str:
    """Return the qualified name of the innermost layer that runs the node; the network itself is ''."""
    stack = module_stack(node)
    name = stack[-1][0] if stack else ""
    # Nodes that torch adds have no layer.
    if not name.startswith("network"):
        return ""
    # torch numbers the further calls of one layer: `layer@1` (2.13).
    name = re.sub(r"@\d+$", "", name)
    return name.removeprefix("network").removeprefix(".")


def _source(node: Node) -> str:
    """Return `file:line` of the innermost frame of the user's code; empty where all frames are torch's."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not frame[0].startswith(TORCH) and frame[0] != __file__]
    return ":".join(own[-1]) if own else ""
