"""Operation: one operator of a network's data flow, with its layer and its line in the user's code."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule, Node

from pluribus.mechanisms.graph.operators import operator_name
from pluribus.mechanisms.network.torch_private import module_stack, schema_of

TORCH = os.path.dirname(torch.__file__) + os.sep
# Modes of ours stand between torch and the user's code in a traceback.
OURS = str(Path(__file__).parents[2]) + os.sep
# So does the module that torch.export reads.
WRAPPER = str(Path(__file__).with_name("export.py"))


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
    own = [frame for frame in frames if not frame[0].startswith(TORCH) and frame[0] != WRAPPER]
    return ":".join(own[-1]) if own else ""
