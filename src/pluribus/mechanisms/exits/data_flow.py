"""Data flow: the steps of a network behind its input layers, and the edges between them.

Read on the graph of eval mode. Numbers of the inputs enter through the input layers, which are the first
layers with weights that are no norms. The flow consists of the steps that follow from these layers and
that the prediction depends on.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.fx import Node

from pluribus.mechanisms.exits.nodes import is_norm_call
from pluribus.mechanisms.exits.returned_shapes import returned_shapes
from pluribus.mechanisms.graph.operators import operator_name, reads_shape_alone
from pluribus.mechanisms.graph.program import Program, read_program
from pluribus.mechanisms.network.network import Network

# Sizes that a network computes with, such as `x.shape[0] // 2`; they are no data.
SIZES = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)
# Position of the inputs, before that of the first step.
START = -1


@dataclass(frozen=True, eq=False)
class Edge:
    """A value on its way from the step that computes it to a step that reads it.

    Attributes:
        start: Position of the first step; -1 for an input.
        end: Position of the second step; the number of steps for the prediction.
        source: Node of the first step.
        user: Node of the second step.
    """

    start: int
    end: int
    source: Node
    user: Node

    def jumps_over(self, position: int) -> bool:
        """Return whether the value passes by a step between the two."""
        return self.start < position < self.end


@dataclass(frozen=True, eq=False)
class DataFlow:
    """The data flow of a network behind its input layers.

    Attributes:
        network: The network.
        program: All of its steps.
        before: The inputs, and the steps between them and the input layers.
        sources: The calls of the input layers.
        positions: Position of every step of the flow in the order of steps.
        shapes: By name of a module that runs once, the shape of the first tensor that it returns.
        predicted: Shape of the prediction.
    """

    network: Network
    program: Program
    before: frozenset[Node]
    sources: tuple[Node, ...]
    positions: dict[Node, int]
    shapes: dict[str, tuple[int, ...]]
    predicted: tuple[int, ...]

    @cached_property
    def layer_calls(self) -> list[Node]:
        """Return the steps of the flow that use parameters, norms left out."""
        calls = [node for node in self.program.calls if node in self.positions]
        return [node for node in calls if not is_norm_call(node)]

    @cached_property
    def results(self) -> set[Node]:
        """Return the nodes that the prediction is made of."""
        return set(self.program.reads(self.program.results))

    @cached_property
    def edges(self) -> list[Edge]:
        """Return all edges of the flow: from the inputs, between steps, and to the prediction."""
        end = len(self.program.steps)
        edges = []
        for node in self.sources:
            if node in self.positions:
                edges.append(Edge(START, self.positions[node], node, node))
        for node, position in self.positions.items():
            for user in self.users(node):
                edges.append(Edge(position, self.positions[user], node, user))
            if node in self.results:
                edges.append(Edge(position, end, node, node))
        return edges

    def users(self, node: Node) -> list[Node]:
        """Return the steps of the flow that read a value."""
        return [user for user in node.users if user in self.positions]

    def parameters_of(self, node: Node) -> frozenset[str]:
        """Return the names of the parameters that a value depends on."""
        seen: set[Node] = set()
        waiting = [node]
        while waiting:
            one = waiting.pop()
            if one not in seen:
                seen.add(one)
                waiting += one.all_input_nodes
        return frozenset(self.program.held[one] for one in seen & self.program.parameters)

    @cached_property
    def has_free_axes(self) -> bool:
        """Return whether the export left a size of an input open, as it does with the batch where it can."""
        for entry in self.program.entries:
            value = entry.meta.get("val")
            if isinstance(value, Tensor) and any(isinstance(size, torch.SymInt) for size in value.shape):
                return True
        return False


def read_data_flow(network: Network) -> DataFlow:
    """Read the data flow of a network in eval mode.

    Raises:
        UnreadableError: the network cannot be exported.
    """
    program = read_program(network)
    before, first_calls = _split_at_first_layers(program)
    reached = _reached_from(first_calls or program.entries, program)
    live = _needed_for_prediction(program)
    positions = {}
    for position, node in enumerate(program.steps):
        if node in reached and node in live:
            positions[node] = position
    # A layer that reads both an input and the flow is no input layer: the flow began before it.
    sources = tuple(node for node in first_calls if reached.isdisjoint(node.all_input_nodes))
    if sources:
        before -= reached
    shapes, predicted = returned_shapes(network)
    return DataFlow(network, program, frozenset(before), sources, positions, shapes, predicted)


def _reads_numbers(node: Node) -> bool:
    """Return whether a step computes numbers from numbers; sizes, and tensors made of sizes, are none."""
    return not isinstance(node.meta.get("val"), SIZES) and not reads_shape_alone(operator_name(node))


def _split_at_first_layers(program: Program) -> tuple[set[Node], list[Node]]:
    """Return what inputs reach without passing a layer, and the layers that they reach next.

    Norms are no layers here: a network that normalises its input still reads it with the layer behind.
    """
    layer_calls = {node for node in program.calls if not is_norm_call(node)}
    before = set(program.entries)
    first_calls = []
    for node in program.steps:
        if not _reads_numbers(node) or before.isdisjoint(node.all_input_nodes):
            continue
        if node in layer_calls:
            first_calls.append(node)
        else:
            before.add(node)
    return before, first_calls


def _reached_from(start: Iterable[Node], program: Program) -> set[Node]:
    """Return some nodes and all steps whose numbers follow from theirs."""
    reached = set(start)
    for node in program.steps:
        if _reads_numbers(node) and not reached.isdisjoint(node.all_input_nodes):
            reached.add(node)
    return reached


def _needed_for_prediction(program: Program) -> set[Node]:
    """Return the nodes whose numbers, and not their sizes alone, the prediction depends on."""
    live = set(program.reads(program.results))
    for node in reversed(program.steps):
        if node in live and _reads_numbers(node):
            live.update(node.all_input_nodes)
    return live
