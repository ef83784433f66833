"""What the steps of a program cost: they run on tensors that have shapes and no values."""

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
class Weight:
    """What one version of a step's value costs.

    Attributes:
        multiply_adds: By the conventions of `cost`.
        bytes: Of the memory that it takes; 0 for a view.
        holds: The steps in whose memory it lies.
    """

    multiply_adds: int
    bytes: int
    holds: frozenset[Node]


def weigh_steps(program: Program, tensors: Mapping[str, Tensor], inputs: Inputs) -> dict[Node, Weight]:
    """The cost of every step on inputs of this size, for one row.

    Args:
        program: The steps.
        tensors: The tensors of one row.
        inputs: One batch.
    """
    weights, owners = dict[Node, Weight](), dict[torch.UntypedStorage, Node]()
    with _pretending(tensors, inputs) as (row, inputs):
        values: dict[Node, Any] = {node: row[name] for node, name in program.held.items()}
        leaves = program.signature.flatten(inputs)
        values |= dict(program.constants) | dict(zip(program.entries, leaves, strict=True))
        known = storages(list(values.values()))
        for node in program.steps:
            with Meter() as meter:
                values[node] = program.step(node, values)
            held = storages(values[node]) - known
            new = {storage for storage in held if storage not in owners}
            owners |= dict.fromkeys(new, node)
            size = sum(storage.nbytes() for storage in new)
            weights[node] = Weight(meter.multiply_adds, size, frozenset(owners[one] for one in held))
    return weights


def weigh_plan(
    plan: ExecutionPlan, size: int, tensors: Mapping[str, Tensor], inputs: Inputs
) -> tuple[int, int]:
    """The most bytes of activations alive at once when a plan runs in blocks of some size, and those of
    its predictions.
    """
    with _pretending(tensors, inputs) as (row, inputs), Meter() as meter:
        predictions = plan.run(lambda rows: repeat(row, len(rows)), inputs, size)
    return meter.peak, predictions.nbytes


def estimate(plan: ExecutionPlan, weights: Mapping[Node, Weight], rows: Sequence[int]) -> int:
    """About how many bytes are alive at once while some rows run together."""
    steps = plan.program.steps
    last = {
        owner: node
        for node in steps
        for read in (node, *node.all_input_nodes)
        for owner in _held(weights, read)
    }
    ends: dict[Node, list[Node]] = {node: [] for node in steps}
    for owner, node in last.items():
        ends[node].append(owner)
    taken = {
        node: weights[node].bytes * len({plan.versions[node][row] for row in rows})
        for node in steps
        if weights[node].bytes
    }
    alive = peak = 0
    for node in steps:
        alive += taken.get(node, 0)
        peak = max(peak, alive)
        alive -= sum(taken.get(owner, 0) for owner in ends[node])
    return peak


def _held(weights: Mapping[Node, Weight], node: Node) -> frozenset[Node]:
    return weights[node].holds if node in weights else frozenset()


@contextmanager
def _pretending(tensors: Mapping[str, Tensor], inputs: Inputs) -> Iterator[tuple[dict[str, Tensor], Inputs]]:
    """A context where these tensors and inputs have shapes and no values."""
    # In inference mode fake tensors cannot be taken apart.
    with torch.inference_mode(False), torch.no_grad(), silence():
        tensors, inputs = {name: one.detach() for name, one in tensors.items()}, inputs.each(Tensor.detach)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            row: dict[str, Tensor] = {name: mode.from_tensor(tensor) for name, tensor in tensors.items()}
            yield row, inputs.each(mode.from_tensor)
