"""Lowering: all rows of an ensemble as one `torch.fx` graph.

The steps of an execution plan are written into a graph instead of being run: a node for each step and
version, in the plan's depth-first order, versions with equal weights folded into the batch. Rows, keys and
draws are evaluated now, so that the graph knows tensors and operators alone. It returns
`[rows, batch, ...]`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.node import map_arg

from pluribus.errors import UnreadableError
from pluribus.mechanisms.graph.builder import GraphBuilder, attribute
from pluribus.mechanisms.graph.factored_weights import Factors, factor_weights
from pluribus.mechanisms.graph.fold_layer_norms import fold_layer_norms
from pluribus.mechanisms.graph.fold_norms import Keys, Of, fold_norms
from pluribus.mechanisms.graph.operators import operator_name
from pluribus.mechanisms.graph.program import Program
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.channels_last import LAST, is_narrow, with_channels_last
from pluribus.mechanisms.running.executor import Executor, Piece
from pluribus.mechanisms.running.plan import ExecutionPlan
from pluribus.mechanisms.running.row_calls import call_rows, rows_share_little
from pluribus.mechanisms.running.simulate import StepCost, estimate, simulate_values

aten: Any = torch.ops.aten

NOMINAL = 32
"""Samples of a batch for which the order of steps and the size of blocks are chosen. A graph runs batches of
every size in one order; at 32 samples a version of more than 32 kB for each sample runs by itself."""
ROOM = 1 << 28
"""Bytes of activations up to which rows run together, for `NOMINAL` samples: 125 layer ensembles of a small
ResNet took 475, 231 and 105 ms for one sample with 16, 64 and 256 MB, and gained with 16 samples too."""
NODES = 5000
"""Nodes up to which all rows are unrolled; beyond, rows call one graph, so that it is quickly made and
compiled."""


@dataclass(frozen=True)
class Flow:
    """The data flow of rows.

    Attributes:
        program: The steps of one row.
        of: Yields the tensors of rows.
        keys: Maps each tensor of a row to its key.
        rows: All rows.
        prefix: What the names of the network's layers begin with in the program.
        factors: Of weights that are products of one weight and two vectors; None where there are none.
    """

    program: Program
    of: Of
    keys: Keys
    rows: Sequence[Any]
    prefix: str = ""
    factors: Factors | None = None


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
    if flow.factors is not None:
        folded = factor_weights(folded, flow.factors, flow.prefix)
    folded = fold_layer_norms(folded, flow.rows, flow.prefix)
    program, notes = folded.program, list(folded.notes)
    of = folded.of
    if is_narrow(program, next(iter(of(flow.rows[:1])))):
        of = with_channels_last(of, program)
        notes.append(LAST)
    plan = ExecutionPlan(program, [folded.keys(row) for row in flow.rows])
    first = next(iter(of(flow.rows[:1])))
    shapes, costs = simulate_values(program, first, nominal)
    size = _block_size(plan, costs, memory)
    executor = Writing(builder, shapes, next(nominal.tensors()).device)

    weights = [program.held[node] for node in program.parameters]

    def bind(positions: Sequence[int]) -> Iterator[Mapping[str, Tensor]]:
        tensors_of = iter(of([flow.rows[position] for position in positions]))
        for _ in positions:
            # Only while tensors are computed: whatever else runs between two rows is no part of them.
            with builder.recording:
                tensors = next(tensors_of)
            builder.mark_weights(tensors[name] for name in weights)
            yield tensors

    if _many(plan) and rows_share_little(plan, costs):
        output = call_rows(executor, builder, plan, bind, leaves)
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
