"""Planner: whether rows can run by a plan, and what has to be read, built and kept for that."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.fx import Node

from pluribus.errors import InputError
from pluribus.mechanisms.graph.cost import storages
from pluribus.mechanisms.graph.program import Program, read_program
from pluribus.mechanisms.members.code import LoweredCode
from pluribus.mechanisms.members.index import Row
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.skeleton import materialise
from pluribus.mechanisms.network.dry_run import PROCESS, dry_run
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.outputs import select_output
from pluribus.mechanisms.network.torch_private import without_dispatch_modes
from pluribus.mechanisms.running.plan import ExecutionPlan
from pluribus.mechanisms.running.simulate import StepCost, estimate, simulate_plan, simulate_steps

T = TypeVar("T")

ROOM = 1 << 24
"""Bytes up to which rows run together, of activations and of tensors that are made for each row; or twice
those of one row alone if that is more.
"""
KINDS = 4
"""Kinds of inputs for which the data flow is read, which takes about a second; others are looped."""
PlanKey = tuple[str, tuple[Row, ...], str, int | None]
"""The kind of inputs, the rows, the inputs with their sizes, and the bound of memory."""
KEPT = 8
"""Plans that are kept, of the latest rows and sizes of batch."""


@dataclass(frozen=True, eq=False)
class Reading:
    """The data flow of a network for one kind of inputs: a program, or the reason why there is none."""

    program: Program | None = None
    code: LoweredCode | None = None
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Planned:
    """Rows that are ready to run on inputs of one size.

    Attributes:
        plan: What is computed when.
        size: How many rows run together.
        weights: What the steps cost for one row.
        drawn: Of the tensors that are made anew for each row, the bytes.
        code: Gives the tensors of rows.
        rows: The rows.
    """

    plan: ExecutionPlan
    size: int
    weights: Mapping[Node, StepCost]
    drawn: Mapping[Node, int]
    code: LoweredCode
    rows: tuple[Row, ...]

    def __call__(self, inputs: Inputs) -> Tensor:
        """Return the predictions of the rows, `[rows, batch, ...]`."""
        return self.plan.run(self._tensors_of, inputs, self.size)

    def peak(self, inputs: Inputs) -> int:
        """Return the most bytes alive at once: activations, and tensors made for the rows of a block."""
        activations = simulate_plan(self.plan, self.size, self.tensors(), inputs)[0]
        return activations + max(map(self.drawn_bytes, self.plan.cut(self.size)))

    def drawn_bytes(self, rows: Sequence[int]) -> int:
        """Return the bytes of the tensors that are made for these rows alone."""
        total = 0
        for node, size in self.drawn.items():
            total += size * len({self.plan.versions[node][row] for row in rows})
        return total

    def estimate(self, rows: Sequence[int]) -> int:
        """Return about how many bytes are alive at once while some rows run together."""
        return estimate(self.plan, self.weights, rows) + self.drawn_bytes(rows)

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the tensors of the first row."""
        with torch.no_grad():
            return next(self._tensors_of([0]))

    def _tensors_of(self, positions: Sequence[int]) -> Iterator[Mapping[str, Tensor]]:
        return iter(self.code.of([self.rows[position] for position in positions]))


class Planner:
    """Reads data flows and plans rows; keeps both. Threads read one after the other.

    Args:
        members: Whose rows.
    """

    def __init__(self, members: Members) -> None:
        self.members = members
        self._readings: dict[str, Reading] = {}
        self._planned: dict[Any, Planned] = {}
        self._weights: dict[Any, dict[Node, StepCost]] = {}
        self._hopeless: dict[tuple[Row, ...], bool] = {}

    def is_hopeless(self, rows: tuple[Row, ...]) -> bool:
        """Return whether rows differ in their first parameter and never agree: then reading is spared."""
        return _kept(self._hopeless, rows, lambda: self._never_agree(rows))

    def _never_agree(self, rows: tuple[Row, ...]) -> bool:
        first = next((name for name, _ in self.members.code.caller.module.named_parameters()), "")
        chosen = [self.members.tensors.keys(row) for row in rows]
        if first not in chosen[0]:
            return False
        return all(len({keys[name] for keys in chosen}) == len(rows) for name in chosen[0])

    def __call__(self, rows: tuple[Row, ...], inputs: Inputs, memory: int | None = None) -> Planned | str:
        """Plan rows; return why that is not possible where the data flow cannot be read.

        One row runs first, so that invalid inputs raise before the slow export.

        Args:
            rows: The rows.
            inputs: One batch.
            memory: The most bytes of activations that may be alive at once.
        """
        kind = _kind(self.members, inputs)
        key = (kind, rows, str(inputs), memory)
        found = self._planned.get(key)
        if found is not None:
            return found
        # Reading holds the lock of torch.export; whoever counts what runs does not want to count this.
        with PROCESS, without_dispatch_modes():
            if kind not in self._readings:
                if len(self._readings) == KINDS:
                    return f"inputs of more than {KINDS} kinds came, and each would have to be read"
                self._try(rows[0], inputs)
                self._readings[kind] = self._read(rows[0], inputs)
            reading = self._readings[kind]
            if reading.program is None or reading.code is None:
                return reading.reason
            reason = reading.program.signature.why_not(inputs)
            if reason:
                return reason
            return _kept(self._planned, key, lambda: self._plan(reading, key, inputs))

    def _try(self, row: Row, inputs: Inputs) -> None:
        """Run one row and leave no trace of it."""
        caller = self.members.code.caller
        module = materialise(caller.module, self.members.tensors.of_one(row))
        with dry_run(module, training=False), torch.no_grad():
            caller.call_module(module, inputs)

    def _plan(self, reading: Reading, key: PlanKey, inputs: Inputs) -> Planned:
        kind, rows, size, memory = key
        program, code = reading.program, reading.code
        assert program is not None
        assert code is not None
        plan = ExecutionPlan(program, [code.keys(row) for row in rows])
        tensors = next(iter(code.of(rows[:1])))
        weights = _kept(self._weights, (kind, size), lambda: simulate_steps(program, tensors, inputs))
        drawn = _drawn(plan, self.members, tensors)
        return _sized(Planned(plan, 1, weights, drawn, code, rows), inputs, memory)

    def _read(self, row: Row, inputs: Inputs) -> Reading:
        device = next(inputs.tensors()).device.type
        caller, tensors = self.members.code.caller, self.members.tensors
        # With gradients, or regions without them would not be seen.
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device, enabled=False):
            member = materialise(caller.module, tensors.of_one(row)).eval()
            try:
                code = self.members.code.lowered(tensors, member, inputs.copy())
                network = Network(code.module, inputs.copy(), caller.output)
                program = read_program(network)
                reason = _why_not(network, program)
                code = replace(code, module=nn.Module())  # its tensors are not kept
            except Exception as error:  # whatever the user's code raises; a loop tells it better
                return Reading(reason=str(error))
        return Reading(reason=reason) if reason else Reading(program, code)


def planner_of(members: Members) -> Planner:
    """Return the planner of some members, which is made once."""
    if "planner" not in members.cache:
        with PROCESS:
            members.cache.setdefault("planner", Planner(members))
    found: Planner = members.cache["planner"]
    return found


@torch.no_grad()
def _why_not(network: Network, program: Program) -> str:
    """Return why a program cannot stand for the code it was read from; empty where it can."""
    if program.writes:
        return f"the network writes into {program.writes[0]} in eval mode"
    if any(program.is_random(node) for node in program.steps):
        return ""
    copied = network.example.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = select_output(network.module(*copied.args, **copied.keywords), network.output)
    came = ExecutionPlan(program, [{}]).run(lambda rows: iter([network.tensors()]), network.example, 1)[0]
    alike = came.shape == expected.shape and torch.allclose(came, expected, 1e-3, 1e-5, equal_nan=True)
    return "" if alike else "the data flow that torch.export reads computes something else than the code"


def _drawn(plan: ExecutionPlan, members: Members, tensors: Mapping[str, Tensor]) -> dict[Node, int]:
    """Return the bytes of what rows do not have in common and the members do not store."""
    kept = storages([*members.parameters(), *members.buffers()])
    apart = {node: tensors[name] for node, name in plan.program.held.items() if plan.count(node) > 1}
    return {node: tensor.nbytes for node, tensor in apart.items() if kept.isdisjoint(storages(tensor))}


def _sized(planned: Planned, inputs: Inputs, memory: int | None) -> Planned:
    """Return the same rows in blocks as large as memory allows."""
    plan = planned.plan
    room = max(ROOM, 2 * planned.estimate(plan.order[:1])) if memory is None else memory
    size = len(plan.order)
    while size > 1:
        if max(map(planned.estimate, plan.cut(size))) <= room:
            found = replace(planned, size=size)
            if memory is None or found.peak(inputs) <= memory:
                return found
        size = -(-size // 2)
    least = 0 if memory is None else planned.peak(inputs)
    if memory is not None and least > memory:
        raise InputError(
            f"memory must be at least {least} bytes for {len(plan.order)} distinct rows on a batch of "
            f"{inputs.batch}, however: memory={memory}. Pass fewer samples at a time, or fewer rows."
        )
    return planned


def _kind(members: Members, inputs: Inputs) -> str:
    """Return what a data flow is read for: inputs up to the size of the batch, precision, device."""
    held = next((tensor for tensor in members.parameters() if tensor.is_floating_point()), None)
    where = held if held is not None else next(inputs.tensors())
    return f"{inputs.take(slice(1))} {where.dtype} {where.device}"


def _kept(cache: dict[Any, T], key: Any, make: Callable[[], T]) -> T:
    if key not in cache:
        value = make()
        if len(cache) == KEPT:
            del cache[next(iter(cache))]
        cache[key] = value
    return cache[key]
