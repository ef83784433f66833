"""Forms: shape, type and memory of the values of a graph, found without computing them."""

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch.fx import Graph, GraphModule, Interpreter, Node

from pluribus.mechanisms.graph.cost import storages
from pluribus.mechanisms.network.torch_private import FakeTensorMode

aten: Any = torch.ops.aten

Forms = Mapping[str, tuple[torch.Size, torch.dtype]]
"""Shape and type of values by the name of their step."""
Memory = Mapping[str, Set[UntypedStorage]]
"""Where values lie in memory, by the name of their step. A view lies where the value lies that it shows.
Inputs and constants are there anyway, and are left out."""


def forms_of(module: GraphModule, graph: Graph, inputs: Sequence[Tensor]) -> tuple[Forms, Memory]:
    """Return shape, type and memory of all values of a graph, without computing them.

    Args:
        module: Holds what the graph reads.
        graph: Its steps.
        inputs: One input.
    """
    shapes: _Shapes = _MetaShapes(module, graph, lambda constant: constant.to("meta"))
    with suppress(Exception), torch.no_grad():
        shapes.run(*[tensor.to("meta") for tensor in inputs])
        return shapes.forms, shapes.memory
    # An operator that wants all tensors on one device, or a graph in the graph. This takes ten times as long.
    with suppress(Exception), FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        shapes = _Shapes(module, graph, mode.from_tensor)
        # An operator that cannot run without numbers ends it: then later products make new values.
        shapes.run(*[mode.from_tensor(tensor) for tensor in inputs])
    return shapes.forms, shapes.memory


class _Shapes(Interpreter):
    """Run a graph without values.

    Args:
        module: Holds what the graph reads.
        graph: Its steps.
        empty: Callback (constant of the graph) -> a tensor like it without values.

    Attributes:
        forms: Shape and type of every value by the name of its step.
        memory: The memory that every value takes, but for that of inputs and constants.
    """

    def __init__(self, module: GraphModule, graph: Graph, empty: Callable[[Tensor], Tensor]) -> None:
        super().__init__(module, graph=graph)
        self.empty = empty
        self.forms = dict[str, tuple[torch.Size, torch.dtype]]()
        self.memory = dict[str, set[UntypedStorage]]()
        self._given = set[UntypedStorage]()

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return self.empty(value) if isinstance(value, Tensor) else value

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, Tensor):
            self.forms[n.name] = (value.shape, value.dtype)
        if n.op in ("placeholder", "get_attr"):
            self._given.update(storages(value))
        self.memory[n.name] = storages(value) - self._given
        return value


class _MetaShapes(_Shapes):
    """Run without the checks that Python would make."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is aten.layer_norm.default:
            # It keeps shape and type, which torch finds out by twenty steps in Python (2.13).
            return torch.empty_like(args[0])
        return super().call_function(target, args, kwargs)
