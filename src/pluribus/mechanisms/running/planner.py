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
from pluribus.mechanisms.members.members import Binding, Stage
from pluribus.mechanisms.members.skeleton import materialise
from pluribus.mechanisms.network.dry_run import PROCESS
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.outputs import Output, select_output
from pluribus.mechanisms.network.torch_private import without_dispatch_modes
from pluribus.mechanisms.running.plan import ExecutionPlan
from pluribus.mechanisms.running.simulate import Weight, estimate, weigh_plan, weigh_steps

T = TypeVar("T")

ROOM = 1 << 24
"""Bytes up to which rows run together, of activations and of tensors that are made for each row; or twice
those of one row alone if that is more.
"""
KINDS = 4
"""Kinds of inputs for which the data flow is read, which takes about a second; others are looped."""
KEPT = 8
"""Plans that are kept, of the latest rows and sizes of batch."""


@dataclass(frozen=True, eq=False)
class Reading:
    """The data flow of a network for one kind of inputs: a program, or the reason why there is none."""

    program: Program | None = None
    stage: Stage | None = None
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Planned:
    """Rows that are ready to run on inputs of one size.

    Attributes:
        plan: What is computed when.
        size: How many rows run together.
        weights: What the steps cost for one row.
        drawn: Of the tensors that are made anew for each row, the bytes.
        stage: Gives the tensors of rows.
        rows: The rows.
    """

    plan: ExecutionPlan
    size: int
    weights: Mapping[Node, Weight]
    drawn: Mapping[Node, int]
    stage: Stage
    rows: tuple[Any, ...]

    def __call__(self, inputs: Inputs) -> Tensor:
        """The predictions of the rows, `[rows, batch, ...]`."""
        return self.plan.run(self._bind, inputs, self.size)

    def peak(self, inputs: Inputs) -> int:
        """The most bytes that are alive at once: activations, and tensors made for the rows of a block."""
        activations = weigh_plan(self.plan, self.size, self.tensors(), inputs)[0]
        return activations + max(map(self.drawn_bytes, self.plan.cut(self.size)))

    def drawn_bytes(self, rows: Sequence[int]) -> int:
        """Of the tensors that are made for these rows alone."""
        return sum(
            size * len({self.plan.versions[node][row] for row in rows}) for node, size in self.drawn.items()
        )

    def estimate(self, rows: Sequence[int]) -> int:
        """About how many bytes are alive at once while some rows run together."""
        return estimate(self.plan, self.weights, rows) + self.drawn_bytes(rows)

    def tensors(self) -> Mapping[str, Tensor]:
        """Those of the first row."""
        with torch.no_grad():
            return next(self._bind([0]))

    def _bind(self, positions: Sequence[int]) -> Iterator[Mapping[str, Tensor]]:
        return iter(self.stage.bind([self.rows[position] for position in positions]))


class Planner:
    """Reads data flows and plans rows; keeps both.

    Args:
        module: The user's code without tensors.
        output: What of the returned values is the prediction.

    Attributes:
        reason: Why the latest rows could not be planned; empty where they could.
    """

    def __init__(self, module: nn.Module, output: Output) -> None:
        self.module, self.output, self.reason = module, output, ""
        self._readings: dict[Any, Reading] = {}
        self._planned: dict[Any, Planned] = {}
        self._weights: dict[Any, dict[Node, Weight]] = {}

    def will_read(self, binding: Binding, inputs: Inputs) -> bool:
        """Whether these inputs are of another kind than those before, and not one too many."""
        return len(self._readings) < KINDS and (id(binding), _kind(binding, inputs)) not in self._readings

    def is_hopeless(self, binding: Binding, rows: Sequence[Any]) -> bool:
        """Whether rows differ in their first parameter and never agree: then reading is spared."""
        first = next((name for name, _ in self.module.named_parameters()), "")
        chosen = [binding.choices(row) for row in rows]
        return first in chosen[0] and all(
            len({choice[name] for choice in chosen}) == len(rows) for name in chosen[0]
        )

    def __call__(
        self, binding: Binding, rows: Sequence[Any], inputs: Inputs, memory: int | None = None
    ) -> Planned | None:
        """Rows ready to run; None, and a reason, where the data flow cannot be had.

        Args:
            binding: The tensors of all rows.
            rows: The rows.
            inputs: One batch.
            memory: The most bytes of activations that may be alive at once.
        """
        key = ((id(binding), _kind(binding, inputs)), tuple(rows), str(inputs), memory)
        found = self._planned.get(key)
        if found is not None:
            return found
        # Reading holds the lock of torch.export; whoever counts what runs does not want to count this.
        with PROCESS, without_dispatch_modes():
            return self._plan(binding, rows, inputs, memory)

    def _plan(
        self, binding: Binding, rows: Sequence[Any], inputs: Inputs, memory: int | None
    ) -> Planned | None:
        kind = (id(binding), _kind(binding, inputs))
        if kind not in self._readings and len(self._readings) == KINDS:
            self.reason = f"inputs of more than {KINDS} kinds came, and each would have to be read"
            return None
        reading = _kept(self._readings, kind, lambda: self._read(binding, rows[0], inputs))
        program, stage = reading.program, reading.stage
        if program is None or stage is None:
            self.reason = reading.reason
            return None
        self.reason = program.signature.why_not(inputs)
        if self.reason:
            return None

        def planned() -> Planned:
            plan = ExecutionPlan(program, [stage.choices(row) for row in rows])
            tensors = next(iter(stage.bind([rows[0]])))
            size = (kind, str(inputs))
            weights = _kept(self._weights, size, lambda: weigh_steps(program, tensors, inputs))
            drawn = _drawn(plan, binding, tensors)
            return _sized(Planned(plan, 1, weights, drawn, stage, tuple(rows)), inputs, memory)

        return _kept(self._planned, (kind, tuple(rows), str(inputs), memory), planned)

    def _read(self, binding: Binding, row: Any, inputs: Inputs) -> Reading:
        device = next(inputs.tensors()).device.type
        # With gradients, or regions without them would not be seen.
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device, enabled=False):
            member = materialise(self.module, next(iter(binding.bind([row])))).eval()
            try:
                stage = binding.stage(member, inputs.copy())
                network = Network(stage.module, inputs.copy(), self.output)
                program = read_program(network)
                reason = _why_not(network, program)
                stage = replace(stage, module=nn.Module())  # its tensors are not kept
            except Exception as error:  # whatever the user's code raises; a loop will say it better
                return Reading(reason=str(error))
        return Reading(reason=reason) if reason else Reading(program, stage)


@torch.no_grad()
def _why_not(network: Network, program: Program) -> str:
    """Why a program cannot stand for the code it was read from; empty where it can."""
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


def _drawn(plan: ExecutionPlan, binding: Binding, tensors: Mapping[str, Tensor]) -> dict[Node, int]:
    """The bytes of what rows do not have in common, and is no part of what the binding keeps."""
    kept = storages([*binding.parameters(), *binding.buffers()])
    apart = {node: tensors[name] for node, name in plan.program.held.items() if plan.count(node) > 1}
    return {node: tensor.nbytes for node, tensor in apart.items() if kept.isdisjoint(storages(tensor))}


def _sized(planned: Planned, inputs: Inputs, memory: int | None) -> Planned:
    """The same rows in blocks as large as memory allows."""
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


def _kind(binding: Binding, inputs: Inputs) -> str:
    """What a data flow is read for: inputs up to the size of the batch, precision, device."""
    held = next((tensor for tensor in binding.parameters() if tensor.is_floating_point()), None)
    where = held if held is not None else next(inputs.tensors())
    return f"{inputs.take(slice(1))} {where.dtype} {where.device}"


def _kept(cache: dict[Any, T], key: Any, make: Callable[[], T]) -> T:
    if key not in cache:
        value = make()
        if len(cache) == KEPT:
            del cache[next(iter(cache))]
        cache[key] = value
    return cache[key]
