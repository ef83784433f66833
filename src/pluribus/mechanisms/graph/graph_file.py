"""Graphs in files: a `torch.fx` graph as plain data, and back, by an allow list of operators.

A node is an object that names an operator and refers to earlier nodes by their positions. Nothing that a file
names is imported or looked up but operators of the allow list; the names of a rebuilt graph are our own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate

from pluribus.errors import InputError
from pluribus.mechanisms.graph.compact import ONCE
from pluribus.mechanisms.graph.node_checks import (
    PYTHON_NAMES,
    PYTHON_OPERATORS,
    allowed,
    check_arguments,
    check_arithmetic,
    check_tensor,
    check_word,
)
from pluribus.mechanisms.graph.operators import find_operator
from pluribus.mechanisms.graph.picklable import PicklableGraph
from pluribus.mechanisms.graph.plain_values import plain_from_data, plain_to_data
from pluribus.mechanisms.network.torch_private import argument_names
from pluribus.schema import Anything, Fields, Flag, Items, Mismatch, Named, Schema, Text, shown

MOST_NODES = 200_000
"""Nodes of one graph; a graph of 5,000 is large."""
MOST_GROWTH = 1024
"""How many times the bytes of a file the tensors may take that are computed from it: members may be many, and
masks are stored as bits."""
IDENTIFIER = Text(most=200, pattern=r"[A-Za-z_][A-Za-z0-9_]*", name="a name")
NODE: Schema = Fields(
    {"does": Text(most=20)},
    {
        "name": IDENTIFIER,
        "operator": Text(most=200),
        "args": Items(Anything()),
        "kwargs": Named(Anything()),
        "value": Anything(),
        "tensor": Text(most=200),
        "parameter": Flag(),
    },
)
GRAPH: Schema = Items(NODE, most=MOST_NODES)

UNFIT = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, OverflowError, MemoryError)
"""Errors of operators for arguments that do not fit; they have no common parent but `Exception`."""


def graph_to_list(module: GraphModule) -> list[dict[str, Any]]:
    """Return the nodes of a graph as plain data.

    Raises:
        InputError: A node is no operator of the allow list, or has an argument that no file can hold.
    """
    places = {node: place for place, node in enumerate(module.graph.nodes)}
    return [_node_to_dict(node, places) for node in module.graph.nodes]


def _node_to_dict(node: Node, places: Mapping[Node, int]) -> dict[str, Any]:
    """Return one node as plain data.

    Args:
        node: The node.
        places: Positions of all nodes.
    """
    if node.op == "placeholder":
        return {"does": "input", "name": str(node.target)}
    if node.op == "get_attr":
        return {"does": "read", "tensor": str(node.target)}
    if node.op == "output":
        return {"does": "return", "value": _to_data(node.args[0], places)}
    args = [_to_data(one, places) for one in node.args]
    if node.op == "call_module":
        return {"does": "row", "args": args}
    kwargs = {name: _to_data(one, places) for name, one in node.kwargs.items()}
    name = _operator_name(node.target)
    if node.meta.get(ONCE):
        is_parameter = bool(node.meta.get("parameter"))
        return {"does": "make", "operator": name, "args": args, "kwargs": kwargs, "parameter": is_parameter}
    return {"does": "call", "operator": name, "args": args, "kwargs": kwargs}


def _operator_name(target: Any) -> str:
    """Return the name under which a file knows an operator.

    Raises:
        InputError: It is not in the allow list.
    """
    name = PYTHON_NAMES.get(target, str(target))
    if name not in PYTHON_OPERATORS and find_operator(name) is not target:
        raise InputError(
            f"a frozen ensemble can be saved if its operators are known, got {name}. Export it, or keep the "
            "ensemble itself with ensemble.save(...)."
        )
    return name


def _to_data(value: Any, places: Mapping[Node, int]) -> Any:
    """Return an argument as plain data; values that JSON does not have are objects with one field.

    Args:
        value: The argument.
        places: Positions of all nodes.
    """
    if isinstance(value, Node):
        return {"node": places[value]}
    if isinstance(value, list | tuple):
        return [_to_data(one, places) for one in value]
    return plain_to_data(value)


class _Reader:
    """Rebuild one graph.

    Args:
        nodes: The nodes as plain data.
        tensors: By name, what nodes read.
    """

    def __init__(self, nodes: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor]) -> None:
        self.nodes, self.tensors = nodes, tensors
        self.graph, self.root = Graph(), nn.Module()
        self.values: list[Any] = []
        self.stored: dict[str, str] = {}
        self.inputs: set[str] = set()
        # Bytes that tensors may take which are computed while a file is read.
        self.room = MOST_GROWTH * sum(tensor.nbytes for tensor in tensors.values()) + (1 << 20)

    def module(self, row: GraphModule | None = None) -> GraphModule:
        """Return the graph as a module in eval mode.

        Args:
            row: The graph that its nodes may call.
        """
        if row is not None:
            self.root.add_module("row", row)
        for place, node in enumerate(self.nodes):
            self.values.append(self._node(node, place, row is not None))
        if not self.nodes or self.nodes[-1]["does"] != "return":
            raise Mismatch("the last node must return a value")
        if any(node["does"] == "return" for node in self.nodes[:-1]):
            raise Mismatch("the last node alone must return a value")
        # Tensors that others were made of are needed no more.
        for read in [node for node in self.graph.nodes if node.op == "get_attr" and not node.users]:
            self.graph.erase_node(read)
        return PicklableGraph(self.root, self.graph).eval()

    def _node(self, node: Mapping[str, Any], place: int, has_row: bool) -> Any:
        """Return one node, added to the graph, or a tensor that is computed now.

        Args:
            node: As plain data.
            place: Its position.
            has_row: Whether there is a graph of rows to call.
        """
        where = f"nodes[{place}]"
        does = node["does"]
        if does == "input":
            return self.graph.placeholder(self._input(node, where))
        if does == "read":
            return self.graph.get_attr(self._tensor(node.get("tensor"), where))
        if does == "return":
            return self.graph.output(self._held(self._returned(node, where)))
        args = tuple(self._value(one, where) for one in node.get("args", ()))
        if does == "row" and has_row:
            return self.graph.call_module("row", self._held(args))
        if does not in ("call", "make"):
            raise Mismatch(
                f"field {where}.does must be input, read, call, make, row or return, got {shown(does)}"
            )
        target = allowed(node.get("operator"), where)
        kwargs = {name: self._value(one, where) for name, one in node.get("kwargs", {}).items()}
        check_arguments(target, args, kwargs, where)
        if node["operator"] in PYTHON_OPERATORS:
            check_arithmetic(node["operator"], does, args, where)
        if does == "make":
            return self._made(target, args, kwargs, where, node.get("parameter", False))
        return self.graph.call_function(target, self._held(args), self._held(kwargs))

    def _returned(self, node: Mapping[str, Any], where: str) -> Any:
        """Return the tensor that the graph returns.

        Args:
            node: As plain data.
            where: Its place in the file.
        """
        value = self._value(node.get("value"), where)
        check_tensor(value, node.get("value"), where)
        return value

    def _input(self, node: Mapping[str, Any], where: str) -> str:
        """Return the name of an input, which becomes a word of generated code.

        Args:
            node: The node.
            where: Its place in the file.
        """
        name = str(node.get("name", ""))
        check_word(name, where)
        if name in self.inputs:
            raise Mismatch(f"field {where}.name must be of one input, got {shown(name)} twice")
        self.inputs.add(name)
        return name

    def _made(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], where: str, parameter: bool
    ) -> Tensor:
        """Return the value of an operator on tensors of the file.

        Args:
            target: The operator.
            args: Its arguments: tensors that were made, nodes that read one, or plain values.
            kwargs: Its arguments by name.
            where: The place of the node in the file.
            parameter: Whether the value is a parameter.
        """

        def constant(part: Any) -> Any:
            if not isinstance(part, Node):
                return part
            if part.op != "get_attr":
                raise Mismatch(f"field {where} must be made of tensors of the file, got an input")
            return getattr(self.root, str(part.target))

        given, named = map_aggregate((args, kwargs), constant)
        try:
            # Without values first: a hostile file must not take more memory than its size allows.
            empty, by_name = map_aggregate((given, dict(named)), _without_values)
            if "device" in argument_names(target):
                # Otherwise an operator that takes no tensor, as `full`, would fill memory right here.
                by_name = {**by_name, "device": torch.device("meta")}
            like = target(*empty, **by_name)
            size = like.nbytes if isinstance(like, Tensor) else self.room + 1
            self.room -= size
            found: Tensor | None = target(*given, **named).detach() if self.room >= 0 else None
        # Operators raise anything for arguments that do not fit.
        except UNFIT as error:
            raise Mismatch(f"field {where} must make a tensor, got {shown(str(error))}") from error
        if found is None:
            raise Mismatch(f"field {where} must make a tensor that the file has room for, got {size:,} bytes")
        return nn.Parameter(found.clone(), requires_grad=False) if parameter else found

    def _held(self, arguments: Any) -> Any:
        """Return arguments with nodes in place of tensors that were made, each of which is held once."""

        def node(part: Any) -> Any:
            if not isinstance(part, Tensor):
                return part
            name = f"made {id(part)}"
            if name not in self.stored:
                # Results of operators may be views of something larger.
                whole = part if isinstance(part, nn.Parameter) else part.clone()
                self.tensors = {**self.tensors, name: whole}
                # With the tensor itself, whose identity must not be given away meanwhile.
                self.tensors[f"{name} itself"] = part
            return self.graph.get_attr(self._tensor(name, ""))

        return map_aggregate(arguments, node)

    def _tensor(self, name: Any, where: str) -> str:
        """Return our own name of a tensor, which is stored once.

        Args:
            name: Its name in the file.
            where: The place of the node in the file.
        """
        if name not in self.tensors:
            raise Mismatch(f"field {where}.tensor must be a tensor of the file, got {shown(name)}")
        if name not in self.stored:
            self.stored[name] = f"tensor_{len(self.stored)}"
            tensor = self.tensors[name]
            if isinstance(tensor, nn.Parameter):
                self.root.register_parameter(self.stored[name], tensor)
            else:
                self.root.register_buffer(self.stored[name], tensor)
        return self.stored[name]

    def _value(self, data: Any, where: str) -> Any:
        """Return an argument of a node.

        Args:
            data: As plain data.
            where: The place of the node in the file.
        """
        if isinstance(data, list):
            return [self._value(one, where) for one in data]
        if isinstance(data, dict) and data.keys() == {"node"}:
            place = data["node"]
            # Only earlier nodes, so that a graph has no cycle.
            if type(place) is not int or not 0 <= place < len(self.values):
                raise Mismatch(f"field {where} must refer to an earlier node, got {shown(place)}")
            return self.values[place]
        return plain_from_data(data, where)


def _without_values(part: Any) -> Any:
    """Return an argument of an operator that computes shapes alone."""
    if isinstance(part, Tensor):
        return part.to("meta")
    return torch.device("meta") if isinstance(part, torch.device) else part


def graph_from_list(
    nodes: Sequence[Mapping[str, Any]],
    tensors: Mapping[str, Tensor],
    row: Sequence[Mapping[str, Any]] | None = None,
) -> GraphModule:
    """Return the graph that `graph_to_list` described.

    Args:
        nodes: Checked against `GRAPH`.
        tensors: By name in the file, those that nodes read; parameters stay parameters.
        row: The nodes of the graph that `row` nodes call; None where there is none.

    Raises:
        Mismatch: A node refers to something that is not there, or is not allowed.
    """
    called = None if row is None else _Reader(row, {}).module()
    return _Reader(nodes, tensors).module(called)
