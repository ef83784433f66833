"""In-place operators as plain ones: `relu_` returns a new value, as `relu` does."""

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from pluribus.mechanisms.graph.operators import COPIES, MOVES, operator_name
from pluribus.mechanisms.network.torch_private import operator_packet, schema_of


def writes_into(node: Node) -> bool:
    """Return whether a step writes into one of its arguments."""
    schema = schema_of(node.target)
    return node.op == "call_function" and schema is not None and bool(schema.is_mutable)


def without_in_place(module: GraphModule) -> GraphModule:
    """Return a graph in which operators that write into a value of their own return a new one, as `relu_`.

    torch's own way of doing so replaces norms and reshapes as well, which other passes then do not know.
    Operators that write into inputs, buffers or views stay.
    """
    if not any(writes_into(node) for node in module.graph.nodes):
        return module
    graph, copies = Graph(), dict[Node, Node]()
    graph.output(graph.graph_copy(module.graph, copies))
    for node in graph.nodes:
        plain = _plain_operator(node)
        if plain is not None:
            node.target = plain
            _read_result(node)
    return GraphModule(module, graph)


def _read_result(node: Node) -> None:
    """Make the steps behind an operator, which read what it wrote into, read its result.

    Args:
        node: The operator, which does not write any more.
    """
    value = node.args[0]
    assert isinstance(value, Node)
    later = [user for user in value.users if user is not node and node < user]
    for user in later:
        user.replace_input_with(value, node)


def _plain_operator(node: Node) -> Any:
    """Return the operator that computes what an in-place one writes into a new value; None if there is none.

    Args:
        node: Any node of a graph.
    """
    if node.op != "call_function" or not writes_into(node):
        return None
    packet = operator_packet(node.target)
    name = str(packet).removeprefix("aten.").removesuffix("_")
    plain = getattr(getattr(torch.ops.aten, name, None), str(node.target).rsplit(".", 1)[-1], None)
    value = node.args[0] if node.args else None
    # Only a value that a step has just made: a view would pass the change on to another value.
    if plain is None or not isinstance(value, Node) or not _is_fresh(value):
        return None
    return None if any(_is_view(user) for user in value.users if user is not node) else plain


def _is_fresh(node: Node) -> bool:
    """Return whether a value has memory of its own: no input, no weight, no view."""
    if node.op != "call_function":
        return False
    # What an in-place operator returns is what it wrote into; it was replaced before, if it could be.
    return schema_of(node.target) is not None and not writes_into(node) and not _is_view(node)


def _is_view(node: Node) -> bool:
    """Return whether a step may return memory of its argument."""
    schema = schema_of(node.target)
    if schema is None:
        return True
    # Reshapes return a view where they can, and their schemas do not tell.
    name = operator_name(node)
    return name in MOVES or name in COPIES or any(one.alias_info is not None for one in schema.returns)


def may_share_memory(value: Any) -> bool:
    """Return whether a value may lie in the memory of an input, or of a tensor that a module holds.

    Args:
        value: A node of a graph, or a plain value.
    """
    while isinstance(value, Node) and value.op == "call_function" and _is_view(value):
        value = value.args[0]
    return isinstance(value, Node) and value.op in ("placeholder", "get_attr")
