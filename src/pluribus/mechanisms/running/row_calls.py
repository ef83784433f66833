"""Row calls: many rows as calls of one graph, with the tensors of each row as arguments.

A graph with a node for every step of every row would take long to make and to compile.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from pluribus.mechanisms.graph.builder import GraphBuilder
from pluribus.mechanisms.graph.picklable import PicklableGraph
from pluribus.mechanisms.graph.program import Program
from pluribus.mechanisms.running.executor import Executor, Piece
from pluribus.mechanisms.running.plan import ExecutionPlan
from pluribus.mechanisms.running.simulate import StepCost


def rows_share_little(plan: ExecutionPlan, costs: Mapping[Node, StepCost]) -> bool:
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


def call_rows(
    executor: Executor,
    builder: GraphBuilder,
    plan: ExecutionPlan,
    bind: Callable[[Sequence[int]], Iterable[Mapping[str, Tensor]]],
    leaves: Sequence[Any],
) -> Any:
    """Write what all rows share, and one call of a graph for each row with its tensors as arguments.

    Args:
        executor: Writes operators.
        builder: The graph.
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
        outputs[row] = builder.module_of(row_graph, given)
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
    return PicklableGraph(program.graph_module, graph).eval(), arguments
