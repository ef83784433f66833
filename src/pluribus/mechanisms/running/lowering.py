"""Lowering: all rows of an ensemble as one `torch.fx` graph.

The steps of an execution plan are written into a graph instead of being run: a node for each step and
version, in the plan's depth-first order, versions with equal weights folded into the batch. Rows, keys and
draws are evaluated now, so that the graph knows tensors and operators alone. It returns
`[rows, batch, ...]`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from pluribus.errors import UnreadableError
from pluribus.mechanisms.graph.builder import GraphBuilder, attribute
from pluribus.mechanisms.graph.fold_norms import Keys, Of, fold_norms
from pluribus.mechanisms.graph.operators import MEMORY_ORDER, operator_name
from pluribus.mechanisms.graph.program import Program
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.plan import ExecutionPlan
from pluribus.mechanisms.running.planner import ROOM
from pluribus.mechanisms.running.simulate import StepCost, estimate, simulate_values
from pluribus.mechanisms.running.stacking import Executor, Piece

aten: Any = torch.ops.aten

NOMINAL = 32
"""Samples of a batch for which the order of steps and the size of blocks are chosen. A graph runs batches of
every size in one order; at 32 samples a version of more than 32 kB for each sample runs by itself."""
NODES = 5000
"""Nodes up to which all rows are unrolled; beyond, rows call one graph, so that it is quickly made and
compiled."""
NARROW = 2e5
"""Weights of a convolution, on average, up to which channels come last on a CPU: ResNet-18 gains
with 1.4e5 and no more with 3.1e5 (benchmarks/packed_speed.py)."""


@dataclass(frozen=True)
class Flow:
    """The data flow of rows.

    Attributes:
        program: The steps of one row.
        of: Yields the tensors of rows.
        keys: Maps each tensor of a row to its key.
        rows: All rows.
        prefix: What the names of the network's layers begin with in the program.
    """

    program: Program
    of: Of
    keys: Keys
    rows: Sequence[Any]
    prefix: str = ""


@dataclass(frozen=True)
class Lowered:
    """Rows that were written into a graph.

    Attributes:
        output: The node of their predictions, `[rows, batch, ...]`.
        plan: The plan that was written.
        costs: Of each step, for one row and `NOMINAL` samples.
        size: How many rows run together.
        notes: What became part of what.
    """

    output: Any
    plan: ExecutionPlan
    costs: Mapping[Node, StepCost]
    size: int
    notes: tuple[str, ...]


class Writing(Executor):
    """Write every operator into a graph.

    Args:
        builder: The graph.
        shapes: By step, a value of the shape of one version, for `NOMINAL` samples.
        device: Of the rows.
    """

    batches_weights = True

    def __init__(self, builder: GraphBuilder, shapes: Mapping[Node, Any], device: torch.device) -> None:
        self.builder, self.shapes, self.device = builder, shapes, device

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        return self.builder.call(target, *args, **kwargs)

    def like(self, node: Node, piece: Piece) -> Any:
        return self.shapes[node]

    def step(self, program: Program, node: Node, values: Mapping[Node, Any]) -> Any:
        if node.op == "get_attr":
            return attribute(program.graph_module, str(node.target))
        arguments, named = map_arg((node.args, node.kwargs), values.__getitem__)
        return self.call(node.target, *arguments, **named)

    def constant(self, numbers: Sequence[Any], beside: Any) -> Any:
        return torch.tensor(numbers, device=self.device)


@torch.no_grad()
def lower(
    builder: GraphBuilder, flow: Flow, leaves: Sequence[Any], nominal: Inputs, memory: int | None
) -> Lowered:
    """Write all rows into a graph.

    Args:
        builder: The graph.
        flow: The data flow of the rows.
        leaves: The inputs of the graph, or plain values, in the order of the program's signature.
        nominal: One batch of `NOMINAL` samples.
        memory: The most bytes of activations that such a batch should need; less if possible, where it is
            too little.

    Raises:
        UnreadableError: A step draws random numbers, or cannot be written into a graph.
    """
    program = flow.program
    _check(program)
    folded = fold_norms(program, flow.of, flow.keys, flow.rows, flow.prefix)
    program, notes = folded.program, list(folded.notes)
    of = folded.of
    if _is_narrow(program, next(iter(of(flow.rows[:1])))):
        of = _channels_last(of, _kernels(program))
        notes.append("channels last in memory")
    plan = ExecutionPlan(program, [folded.keys(row) for row in flow.rows])
    first = next(iter(of(flow.rows[:1])))
    shapes, costs = simulate_values(program, first, nominal)
    size = _block_size(plan, costs, memory)
    executor = Writing(builder, shapes, next(nominal.tensors()).device)

    weights = [program.held[node] for node in program.parameters]

    def bind(positions: Sequence[int]) -> Iterator[Mapping[str, Tensor]]:
        for tensors in of([flow.rows[position] for position in positions]):
            builder.mark_weights(tensors[name] for name in weights)
            yield tensors

    if _many(plan) and _rows_share_little(plan, costs):
        output = _call_rows(executor, plan, bind, leaves)
    else:
        output = plan.execute(executor, bind, leaves, size)
    return Lowered(output, plan, costs, size, tuple(notes))


def _check(program: Program) -> None:
    """Raise for a program that no graph can stand for."""
    for node in program.steps:
        if program.is_random(node):
            raise UnreadableError(f"{operator_name(node)} draws random numbers in eval mode")
    if program.prediction is None:
        raise UnreadableError("output= is a function that computes the prediction, and is no part of a graph")


def _block_size(plan: ExecutionPlan, costs: Mapping[Node, StepCost], memory: int | None) -> int:
    """Return how many rows run together: as many as the room allows, at least one."""
    room = memory
    if room is None:
        room = max(ROOM, 2 * estimate(plan, costs, plan.order[:1]))
    size = len(plan.order)
    while size > 1:
        if max(estimate(plan, costs, rows) for rows in plan.cut(size)) <= room:
            return size
        size = -(-size // 2)
    return size


def _many(plan: ExecutionPlan) -> bool:
    """Return whether the steps of all versions are too many nodes for one graph."""
    return sum(map(plan.count, plan.program.steps)) > NODES


def _rows_share_little(plan: ExecutionPlan, costs: Mapping[Node, StepCost]) -> bool:
    """Return whether rows share hardly anything but what all of them share."""
    # Regions that are graphs of their own cannot be arguments of a graph.
    if any(node.op == "get_attr" for node in plan.program.steps):
        return False
    rows = len(plan.order)
    planned = sum(plan.count(node) * cost.multiply_adds for node, cost in costs.items())
    by_rows = 0
    for node, cost in costs.items():
        by_rows += (1 if plan.count(node) == 1 else rows) * cost.multiply_adds
    # A twentieth more work is worth a graph that is a hundred times smaller.
    return by_rows <= 1.05 * planned


def _call_rows(
    executor: Writing, plan: ExecutionPlan, bind: Callable[[Sequence[int]], Any], leaves: Sequence[Any]
) -> Any:
    """Write what all rows share, and one call of a graph for each row with its tensors as arguments.

    Args:
        executor: Writes operators.
        plan: The rows.
        bind: Gives the tensors of rows.
        leaves: The inputs.
    """
    program = plan.program
    values = dict[Node, Any](program.constants) | dict(zip(program.entries, leaves, strict=True))
    rows = list(zip(plan.order, bind(plan.order), strict=True))
    for node, name in program.held.items():
        if plan.count(node) == 1:
            values[node] = rows[0][1][name]
    own = list[Node]()
    for node in program.steps:
        if plan.count(node) > 1:
            own.append(node)
        else:
            values[node] = executor.step(program, node, values)
    row_graph, arguments = _row_graph(program, own)
    outputs = dict[int, Any]()
    for row, tensors in rows:
        given = [values[node] if node in values else tensors[program.held[node]] for node in arguments]
        outputs[row] = executor.builder.module_of(row_graph, given)
    pieces = [Piece(outputs[row]) for row in plan.order]
    return plan.in_order([executor.together(pieces)], executor)


def _row_graph(program: Program, steps: Sequence[Node]) -> tuple[GraphModule, list[Node]]:
    """Return the graph of the steps in which rows differ, and the nodes whose values are its inputs."""
    graph, copies = Graph(), dict[Node, Node]()
    inside, arguments = set(steps), list[Node]()
    for node in steps:
        for read in node.all_input_nodes:
            if read not in inside and read not in arguments:
                arguments.append(read)
    for node in arguments:
        copies[node] = graph.placeholder(node.name)
    for node in steps:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    assert program.prediction is not None
    graph.output(copies[program.prediction])
    return GraphModule(program.graph_module, graph).eval(), arguments


def _kernels(program: Program) -> set[str]:
    """Return the names of the weights of all two-dimensional convolutions."""
    names = set[str]()
    for node in program.steps:
        if operator_name(node) == "conv2d" and node.args[1] in program.held:
            names.add(program.held[node.args[1]])
    return names


def _is_narrow(program: Program, tensors: Mapping[str, Tensor]) -> bool:
    """Return whether convolutions are so narrow that a CPU runs them faster with channels last."""
    weights = [tensors[name] for name in _kernels(program)]
    # Other devices choose the order of memory by themselves.
    if not weights or any(weight.device.type != "cpu" for weight in weights):
        return False
    # An operator such as `view` depends on the order of channels in memory.
    if any(operator_name(node) in MEMORY_ORDER for node in program.steps):
        return False
    return sum(map(Tensor.numel, weights)) / len(weights) <= NARROW


def _channels_last(of: Of, names: set[str]) -> Of:
    """Return a function that yields the tensors of rows, some with their channels last in memory."""

    def ordered(rows: Sequence[Any]) -> Iterator[Mapping[str, Tensor]]:
        # With the tensors themselves, as their memory must not be freed and used again meanwhile.
        known = dict[int, tuple[Tensor, Tensor]]()
        for values in of(rows):
            found = dict(values)
            for name in names:
                value = values[name]
                # Rows that share a weight must go on sharing it.
                if value.data_ptr() not in known:
                    last = value.contiguous(memory_format=torch.channels_last)
                    known[value.data_ptr()] = (value, last)
                found[name] = known[value.data_ptr()][1]
            yield found

    return ordered
