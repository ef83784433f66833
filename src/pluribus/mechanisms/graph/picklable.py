"""Picklable graphs: `torch.fx` modules that pickle their steps and not their source."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate

from pluribus.mechanisms.network.torch_private import HELD, schema_of


@dataclass(frozen=True)
class _Place:
    """Stand for an earlier step, by its position."""

    position: int


@dataclass(frozen=True)
class _Step:
    """A node as plain data.

    Attributes:
        op: What the node does.
        target: What it calls or reads; of an operator, its name.
        is_operator: Whether the target is the name of an operator of torch, which does not pickle itself.
        args: Its arguments, places instead of nodes.
        kwargs: Its arguments by name.
        name: Of the node.
    """

    op: str
    target: Any
    is_operator: bool
    args: Any
    kwargs: Any
    name: str


class PicklableGraph(GraphModule):
    """A graph that pickles as it is.

    torch pickles the source of a graph and traces it again (2.13). That fails where an operator reads sizes
    and no tensor, as the first state of an LSTM does, and loses `meta`.
    """

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return how a copy is made."""
        held = {name: self.__dict__[name] for name in HELD}
        return _rebuilt, (_steps(self.graph), held, self.meta)


def _steps(graph: Graph) -> list[_Step]:
    """Return the nodes of a graph as plain data."""
    places, steps = dict[Any, _Place](), list[_Step]()

    def place(part: Any) -> Any:
        return places[part] if isinstance(part, Node) else part

    for position, node in enumerate(graph.nodes):
        places[node] = _Place(position)
        args, kwargs = map_aggregate((node.args, dict(node.kwargs)), place)
        is_operator = schema_of(node.target) is not None
        target = str(node.target) if is_operator else node.target
        steps.append(_Step(node.op, target, is_operator, args, kwargs, node.name))
    return steps


def _rebuilt(
    steps: Sequence[_Step], held: Mapping[str, Mapping[str, Any]], meta: dict[str, Any]
) -> PicklableGraph:
    """Return the graph of some steps.

    Args:
        steps: As `_steps` returned them.
        held: What the graph held, by `HELD`.
        meta: Of the graph.
    """
    graph, nodes = Graph(), list[Any]()

    def node(part: Any) -> Any:
        return nodes[part.position] if isinstance(part, _Place) else part

    for step in steps:
        args, kwargs = map_aggregate((step.args, step.kwargs), node)
        target: Any = step.target
        if step.is_operator:
            # Such as `aten.linear.default`.
            target = reduce(getattr, step.target.split("."), torch.ops)
        nodes.append(graph.create_node(step.op, target, args, dict(kwargs), step.name))
    root = nn.Module()
    root.__dict__.update(held)
    made = PicklableGraph(root, graph).eval()
    assert isinstance(made, PicklableGraph)
    made.meta.update(meta)
    return made
