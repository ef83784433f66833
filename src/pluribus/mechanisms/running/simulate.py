"""Simulate: compute the cost of a program's steps by running them on tensors without values."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from pluribus.mechanisms.graph.cost import Meter, storages
from pluribus.mechanisms.graph.program import Program
from pluribus.mechanisms.network.dry_run import silence
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.torch_private import FakeTensorMode
from pluribus.mechanisms.running.plan import ExecutionPlan


@dataclass(frozen=True)
class StepCost:
    """Hold the cost of one version of a step's value.

    Attributes:
        multiply_adds: By the conventions of `cost`.
        bytes: The memory that it takes; 0 for a view.
        holds: The steps in whose memory it lies.
    """

    multiply_adds: int
    bytes: int
    holds: frozenset[Node]


def simulate_steps(program: Program, tensors: Mapping[str, Tensor], inputs: Inputs) -> dict[Node, StepCost]:
    """Return the cost of every step on inputs of this size, for one row.

    Args:
        program: The steps.
        tensors: The tensors of one row.
        inputs: One batch.
    """
    return simulate_values(program, tensors, inputs)[1]


def simulate_values(
    program: Program, tensors: Mapping[str, Tensor], inputs: Inputs
) -> tuple[dict[Node, Any], dict[Node, StepCost]]:
    """Return the value of every node, without numbers, and the cost of every step, for one row.

    Args:
        program: The steps.
        tensors: The tensors of one row.
        inputs: One batch.
    """
    costs, owners = dict[Node, StepCost](), dict[torch.UntypedStorage, Node]()
    with without_values(tensors, inputs) as (row, inputs):
        values: dict[Node, Any] = {node: row[name] for node, name in program.held.items()}
        leaves = program.signature.flatten(inputs)
        values |= dict(program.constants) | dict(zip(program.entries, leaves, strict=True))
        known = storages(list(values.values()))
        for node in program.steps:
            with Meter() as meter:
                values[node] = program.step(node, values)
            # Weights and inputs are there anyway, and are no activations.
            held = storages(values[node]) - known
            # A storage belongs to the step that made it; a view holds the storage of another step.
            new = held - owners.keys()
            owners |= dict.fromkeys(new, node)
            size = sum(storage.nbytes() for storage in new)
            costs[node] = StepCost(meter.multiply_adds, size, frozenset(owners[one] for one in held))
    return values, costs


def simulate_plan(
    plan: ExecutionPlan, size: int, tensors: Mapping[str, Tensor], inputs: Inputs
) -> tuple[int, int]:
    """Return the most bytes of activations alive at once when a plan runs, and those of its predictions.

    Args:
        plan: The plan.
        size: How many rows run together, in one block.
        tensors: The tensors of one row, which stands for all.
        inputs: One batch.
    """
    with without_values(tensors, inputs) as (row, inputs), Meter() as meter:
        predictions = plan.run(lambda rows: repeat(row, len(rows)), inputs, size)
    return meter.peak, predictions.nbytes


def estimate(plan: ExecutionPlan, costs: Mapping[Node, StepCost], rows: Sequence[int]) -> int:
    """Return about how many bytes are alive at once while some rows run together.

    Args:
        plan: The plan.
        costs: What `simulate_steps` returned.
        rows: Positions of the rows.
    """
    alive = peak = 0
    freed = _freed_after(plan.program.steps, costs)
    taken = dict[Node, int]()
    for node in plan.program.steps:
        # Rows that share a version share its memory.
        versions = {plan.versions[node][row] for row in rows}
        taken[node] = costs[node].bytes * len(versions)
        alive += taken[node]
        peak = max(peak, alive)
        alive -= sum(taken[owner] for owner in freed[node])
    return peak


def _freed_after(steps: Sequence[Node], costs: Mapping[Node, StepCost]) -> dict[Node, list[Node]]:
    """Map each step to those whose memory nobody reads after it."""
    last_reader = dict[Node, Node]()
    for node in steps:
        for read in (node, *node.all_input_nodes):
            # Weights and inputs are no steps, and are not freed.
            if read in costs:
                last_reader |= dict.fromkeys(costs[read].holds, node)
    freed: dict[Node, list[Node]] = {node: [] for node in steps}
    for owner, node in last_reader.items():
        freed[node].append(owner)
    return freed


@contextmanager
def without_values(
    tensors: Mapping[str, Tensor], inputs: Inputs
) -> Iterator[tuple[dict[str, Tensor], Inputs]]:
    """Yield these tensors and inputs with shapes and no values."""
    # In inference mode fake tensors cannot be taken apart.
    with torch.inference_mode(False), torch.no_grad(), silence():
        tensors, inputs = {name: one.detach() for name, one in tensors.items()}, inputs.each(Tensor.detach)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            row: dict[str, Tensor] = {name: mode.from_tensor(tensor) for name, tensor in tensors.items()}
            yield row, inputs.each(mode.from_tensor)
