"""The network's data flow, read with `torch.export`; every operation knows its module and source line."""

import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from pluribus.errors import UnreadableError
from pluribus.mechanisms.network.dry_run import PROCESS, accepting, dry_run, restored, silence
from pluribus.mechanisms.network.inputs import Inputs

TORCH = os.path.dirname(torch.__file__) + os.sep


@dataclass(frozen=True)
class Operation:
    """One operator of the data flow: what it is, which layer runs it, and where the code says so."""

    node: Node
    operator: str
    layer: str
    source: str

    def argument(self, name: str, default: Any = None) -> Any:
        """The operator's argument of that name in its schema."""
        schema = getattr(self.node.target, "_schema", None)
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
        first_names: Of every name of a parameter, the first name of the same parameter.
    """

    program: torch.export.ExportedProgram
    training: bool
    first_names: dict[str, str]

    def operations(self) -> Iterator[Operation]:
        """All operators, those inside of nested graphs (`torch.no_grad` regions, branches) last."""
        for part in self.program.graph_module.modules():
            for node in part.graph.nodes if isinstance(part, GraphModule) else ():
                if node.op == "call_function":
                    yield Operation(node, _operator(node), layer_of(node), _source(node))

    def used(self) -> set[str]:
        """The names of the parameters that the data flow reads."""
        names = self.program.graph_signature.inputs_to_parameters
        return {
            self.first_names[names[node.name].removeprefix("network.")]
            for node in self.program.graph.nodes
            if node.name in names and node.users
        }


def read_graph(module: nn.Module, example: Inputs, training: bool) -> Graph:
    """Exports `module` in one mode with a dynamic batch; its state and its mode stay as they were.

    Raises:
        UnreadableError: the network cannot be exported; the message carries torch's reason.
    """
    batch = example.batch

    def dynamic(value: Any) -> Any:
        has_batch = isinstance(value, Tensor) and value.ndim > 0 and value.shape[0] == batch
        return {0: torch.export.Dim.AUTO} if has_batch else None

    shapes = (
        tuple(map(dynamic, example.args)),
        {name: dynamic(value) for name, value in example.keywords.items()},
    )
    try:
        with PROCESS, restored(module, training), silence(), kept_random_state():
            program = torch.export.export(
                _Root(module), (example.args, example.keywords), dynamic_shapes=shapes, strict=False
            )
    except Exception as error:
        if not training:  # in training a network may need more than its inputs
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


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Keep torch.export from putting the global random state back to what it was at its start.

    It traces with tensors that have no values and draws nothing (torch 2.13), while other threads draw:
    putting the state back would replay their numbers. Call it with the lock `PROCESS` held.
    """
    from torch._functorch import aot_autograd  # takes a second to import

    tracing: Any = aot_autograd
    before = tracing.preserve_rng_state
    tracing.preserve_rng_state = nullcontext
    try:
        yield
    finally:
        tracing.preserve_rng_state = before


class _Root(nn.Module):
    """Holds the network as a child: a network that is one layer has a name then, and torch.export,
    which mistakes the dynamic shapes of keyword inputs, sees two plain arguments.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.network(*args, **kwargs)


def _line(error: Exception) -> str:
    """`file:line` of the innermost frame of the user's code in which an error came up."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    own = [f"{file}:{line}" for file, line in frames if not file.startswith((TORCH, __file__, "<"))]
    return own[-1] if own else ""


def _operator(node: Node) -> str:
    return str(node.target).removeprefix("aten.").split(".")[0]


def layer_of(node: Node) -> str:
    """The qualified name of the innermost layer that runs the node; the network itself is ''."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    name = stack[-1][0] if stack else ""
    if not name.startswith("network"):  # nodes that torch adds have no layer
        return ""
    name = re.sub(r"@\d+$", "", name)  # torch marks the second call of a layer so
    return name.removeprefix("network").removeprefix(".")


def _source(node: Node) -> str:
    """`file:line` of the innermost frame of the user's code; empty where all frames are torch's."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not frame[0].startswith(TORCH) and frame[0] != __file__]
    return ":".join(own[-1]) if own else ""
