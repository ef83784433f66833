"""Reuse memory: a graph as it runs, which needs less new memory than the plain one.

A new tensor of some megabytes costs more than the arithmetic: the system hands out its pages one by one. Two
rules avoid that, and both keep the numbers to the bit:

- `relu(x)` becomes `relu_(x)`, `x * mask` becomes `x.mul_(mask)`, and `x + y` or `y + x` becomes `x.add_(y)`,
  where an operator has just made `x` and nothing else reads it;
- `max_pool(relu(x))` becomes `relu_(max_pool(x))`, which is the same because ReLU is monotone, and runs on
  fewer numbers.

Steps come in an order that needs less memory at once (`depth_first.py`), wide convolutions that are pooled at
once run in pieces (`pool_in_pieces.py`), and channels are picked in their order in memory (`pick_last.py`).

Such a graph is for running without gradients alone. Files and exports are made of the plain graph.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch.fx import Graph, GraphModule, Interpreter, Node

from pluribus.mechanisms.graph.cost import storages
from pluribus.mechanisms.graph.depth_first import Memory, depth_first
from pluribus.mechanisms.graph.operators import (
    ADDED_PRODUCTS,
    CONCATENATIONS,
    CONVOLUTIONS,
    names,
    operator_name,
)
from pluribus.mechanisms.graph.pick_last import pick_last
from pluribus.mechanisms.graph.pool_in_pieces import Forms, pool_in_pieces, wide_pooled
from pluribus.mechanisms.graph.unread import erase_unread
from pluribus.mechanisms.network.torch_private import FakeTensorMode

aten: Any = torch.ops.aten

# They compute every number from the one that they replace.
_IN_PLACE = {
    aten.relu.default: aten.relu_.default,
    aten.gelu.default: aten.gelu_.default,
    aten.silu.default: aten.silu_.default,
}
# The order of their two values does not matter.
_IN_PLACE_OF_TWO = {aten.mul.Tensor: aten.mul_.Tensor, aten.add.Tensor: aten.add_.Tensor}
# They always return memory of their own.
_FRESH = (
    CONVOLUTIONS
    | ADDED_PRODUCTS
    | CONCATENATIONS
    | names(
        "linear bmm mm stack index_select add add_ mul mul_ relu relu_ gelu gelu_ silu silu_ batch_norm "
        "max_pool2d"
    )
)
# They return the same numbers in another shape. `expand` is left out: there one number stands for several.
_VIEWS = names("view reshape flatten unflatten unsqueeze squeeze transpose movedim permute")
_POOLS = names("max_pool1d max_pool2d max_pool3d")


def reuse_memory(module: GraphModule, inputs: Sequence[Tensor]) -> Graph:
    """Return the graph of a module with operators that write in place.

    Args:
        module: Its graph is not changed.
        inputs: One input of it, for the shapes of values.
    """
    graph, copies = Graph(), dict[Node, Node]()
    graph.output(graph.graph_copy(module.graph, copies))
    # A graph of a file may have steps that nothing reads, of which no order knows.
    erase_unread(graph)
    forms, memory = _forms(module, graph, inputs)
    depth_first(graph, memory)
    pool_in_pieces(graph, wide_pooled(graph), forms)
    pick_last(graph, module, forms)
    for node in list(graph.nodes):
        _pool_first(graph, node)
    for node in graph.nodes:
        if node.target in _IN_PLACE and _is_own(node.args[0]):
            node.target = _IN_PLACE[node.target]
    for node in graph.nodes:
        if _IN_PLACE_OF_TWO.get(node.target) and _owned(node):
            _write_into_one(node, forms)
    return graph


def _owned(node: Node) -> list[Node]:
    """Return those of the two values of a step that an operator has just made, and this step alone reads."""
    if len(node.args) != 2 or node.kwargs:
        return []
    return [one for one in node.args if isinstance(one, Node) and _is_own(one)]


def _write_into_one(node: Node, forms: Forms) -> None:
    """Write the result of a step of two values into one of them, if it has that shape and type."""
    for value in _owned(node):
        # A mask of more axes would make the result larger than the value.
        if node.name in forms and forms[node.name] == forms.get(value.name):
            other = node.args[1] if value is node.args[0] else node.args[0]
            node.target, node.args = _IN_PLACE_OF_TWO[node.target], (value, other)
            return


def _pool_first(graph: Graph, pool: Node) -> None:
    """Move a ReLU behind the pooling that alone reads it."""
    if operator_name(pool) not in _POOLS:
        return
    reader, value = pool, pool.args[0]
    while isinstance(value, Node) and len(value.users) == 1 and operator_name(value) in _VIEWS:
        reader, value = value, value.args[0]
    if not isinstance(value, Node) or value.op != "call_function" or len(value.users) != 1:
        return
    before = value.args[0]
    if operator_name(value) != "relu" or not isinstance(before, Node):
        return
    reader.replace_input_with(value, before)
    with graph.inserting_after(pool):
        later = graph.call_function(aten.relu.default, (pool,))
    pool.replace_all_uses_with(later, lambda user: user is not later)
    graph.erase_node(value)


def _is_own(value: Any) -> bool:
    """Return whether an operator has just made a value, and one step alone reads it."""
    while isinstance(value, Node) and value.op == "call_function" and len(value.users) == 1:
        name = operator_name(value)
        if name in _FRESH:
            return True
        if name not in _VIEWS:
            return False
        value = value.args[0]
    return False


def _forms(module: GraphModule, graph: Graph, inputs: Sequence[Tensor]) -> tuple[Forms, Memory]:
    """Return shape, type and memory of all values of a graph, without computing them.

    Args:
        module: Holds what the graph reads.
        graph: Its steps.
        inputs: One input.
    """
    forms, memory = dict[str, tuple[torch.Size, torch.dtype]](), dict[str, set[UntypedStorage]]()
    given = set[UntypedStorage]()

    class Run(Interpreter):
        def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
            value = super().get_attr(target, args, kwargs)
            # So that a view of a constant is known to be one.
            return mode.from_tensor(value) if isinstance(value, Tensor) else value

        def run_node(self, n: Node) -> Any:
            value = super().run_node(n)
            if isinstance(value, Tensor):
                forms[n.name] = (value.shape, value.dtype)
            if n.op in ("placeholder", "get_attr"):
                given.update(storages(value))
            memory[n.name] = storages(value) - given
            return value

    with suppress(Exception), FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        # An operator that cannot run without numbers ends it: then later products make new values.
        Run(module, graph=graph).run(*[mode.from_tensor(tensor) for tensor in inputs])
    return forms, memory
