"""Planner: read the data flow of a network, plan rows on it, and keep both."""

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

# Beyond the caches of a CPU larger blocks gain nothing, and take memory.
ROOM = 1 << 24
"""Bytes up to which rows run together, of activations and of tensors that are made for each row; or twice
those of one row alone if that is more.
"""
# A loop over ever new shapes must not export without end.
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
        plan: The order in which values are computed and freed.
        size: How many rows run together.
        weights: The cost of each step for one row.
        drawn: Bytes of each tensor that is made anew for each row.
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
        # torch.export is not safe under threads; and a counter of operators must not count the export.
        with PROCESS, without_dispatch_modes():
            if kind not in self._readings and len(self._readings) == KINDS:
                return f"inputs of more than {KINDS} kinds came, and each would have to be read"
            reading = self.read(rows[0], inputs)
            if reading.program is None or reading.code is None:
                return reading.reason
            reason = reading.program.signature.why_not(inputs)
            if reason:
                return reason
            return _kept(self._planned, key, lambda: self._plan(reading, key, inputs))

    def read(self, row: Row, inputs: Inputs) -> Reading:
        """Return the data flow for one kind of inputs, read once; it may be a reason why there is none."""
        kind = _kind(self.members, inputs)
        with PROCESS, without_dispatch_modes():
            if kind not in self._readings:
                self._try(row, inputs)
                self._readings[kind] = self._read(row, inputs)
            return self._readings[kind]

    def _try(self, row: Row, inputs: Inputs) -> None:
        """Run one row and leave no trace of it."""
        caller = self.members.code.caller
        module = materialise(caller.module, self.members.tensors.of_one(row))
        with dry_run(module, training=False), torch.no_grad():
            caller.call_module(module, inputs)

    def _plan(self, reading: Reading, key: PlanKey, inputs: Inputs) -> Planned:
        """Return the plan of the rows of a key, in blocks as large as memory allows."""
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
        """Export the code with the tensors of one row, and compare the result with the code."""
        device = next(inputs.tensors()).device.type
        caller, tensors = self.members.code.caller, self.members.tensors
        # Without gradients, torch.export would not record regions such as `torch.no_grad()`.
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device, enabled=False):
            member = materialise(caller.module, tensors.of_one(row)).eval()
            try:
                code = self.members.code.lowered(tensors, member, inputs.copy())
                network = Network(code.module, inputs.copy(), caller.output)
                program = read_program(network)
                reason = _why_not(network, program)
                # The module holds the tensors of one row, which must not be kept alive.
                code = replace(code, module=nn.Module())
            # The user's code may raise anything; the loop that runs instead raises it with its own trace.
            except Exception as error:
                return Reading(reason=str(error))
        if reason:
            return Reading(reason=reason)
        return Reading(program, code)


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
    # Random numbers would differ, whatever the program computes.
    if any(program.is_random(node) for node in program.steps):
        return ""
    copied = network.example.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = select_output(network.module(*copied.args, **copied.keywords), network.output)
    plan = ExecutionPlan(program, [{}])
    found = plan.run(lambda rows: iter([network.tensors()]), network.example, 1)[0]
    # Operators may round differently when decomposed; a wrong branch differs by far more.
    alike = found.shape == expected.shape and torch.allclose(found, expected, 1e-3, 1e-5, equal_nan=True)
    if alike:
        return ""
    return "the data flow that torch.export reads computes something else than the code"


def _drawn(plan: ExecutionPlan, members: Members, tensors: Mapping[str, Tensor]) -> dict[Node, int]:
    """Map each tensor that is made for a row, and not stored by the members, to its bytes.

    Args:
        plan: The plan of the rows.
        members: Whose parameters and buffers are there anyway.
        tensors: The tensors of one row.
    """
    kept = storages([*members.parameters(), *members.buffers()])
    drawn = dict[Node, int]()
    for node, name in plan.program.held.items():
        tensor = tensors[name]
        # A view of a stored tensor takes no memory of its own.
        if plan.count(node) > 1 and kept.isdisjoint(storages(tensor)):
            drawn[node] = tensor.nbytes
    return drawn


def _sized(planned: Planned, inputs: Inputs, memory: int | None) -> Planned:
    """Return the same rows in blocks as large as memory allows."""
    plan = planned.plan
    room = memory
    if room is None:
        room = max(ROOM, 2 * planned.estimate(plan.order[:1]))
    size = len(plan.order)
    while size > 1:
        # The estimate is quick; the exact peak takes a dry run, and matters only for a bound.
        if max(map(planned.estimate, plan.cut(size))) <= room:
            found = replace(planned, size=size)
            if memory is None or found.peak(inputs) <= memory:
                return found
        size = -(-size // 2)
    if memory is None:
        return planned
    least = planned.peak(inputs)
    if least > memory:
        raise InputError(
            f"memory must be at least {least} bytes for {len(plan.order)} distinct rows on a batch of "
            f"{inputs.batch}, got memory={memory}. Pass fewer samples at a time, or fewer rows."
        )
    return planned


def _kind(members: Members, inputs: Inputs) -> str:
    """Return the cache key of a data flow: inputs up to the batch, free sizes, precision, device."""
    held = next((tensor for tensor in members.parameters() if tensor.is_floating_point()), None)
    where = held if held is not None else next(inputs.tensors())
    free = {place: sorted(axes) for place, axes in (inputs.free or {}).items()}
    return f"{inputs.take(slice(1))} {free or ''} {where.dtype} {where.device}"


def _kept(cache: dict[Any, T], key: Any, make: Callable[[], T]) -> T:
    """Return what a cache holds for a key, made if it is new; the oldest of `KEPT` entries gives way."""
    if key not in cache:
        value = make()
        if len(cache) == KEPT:
            del cache[next(iter(cache))]
        cache[key] = value
    return cache[key]
