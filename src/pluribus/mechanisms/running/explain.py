"""What rows share and what that saves, before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from pluribus.mechanisms.graph.cost import Meter
from pluribus.mechanisms.graph.export import layer_of
from pluribus.mechanisms.members.members import Binding
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.plan import ExecutionPlan
from pluribus.mechanisms.running.planner import Planned
from pluribus.mechanisms.running.runner import Runner
from pluribus.mechanisms.running.simulate import weigh_plan

SHOWN = 8
"""Layers that are printed of a list."""


@dataclass(frozen=True)
class Saving:
    """A number with shared execution, and one row at a time."""

    planned: int
    alone: int

    @property
    def ratio(self) -> float:
        """How many times less; 1 where nothing is saved."""
        return self.alone / self.planned if self.planned else 1.0


@dataclass(frozen=True)
class Fork:
    """A layer where rows part: how often it runs, and how many values come in."""

    layer: str
    runs: int
    values: int


@dataclass(frozen=True)
class Explanation:
    """How rows run; `print` it for a table.

    Attributes:
        rows: How many rows were asked for.
        reason: Why rows run one after the other; empty where they run by a plan.
        together: How many rows run at a time.
        draws: How many draws the rows stand for; equal ones are one row.
        shared: Layers with weights that run once for all rows.
        common: The share of a row's multiply-adds that is the same for all rows, in [0, 1].
        forks: Layers where rows part, in the order of the data flow.
        layer_calls: Runs of operators that read parameters.
        multiply_adds: By the conventions of `cost`.
        written_bytes: Of all activations, each as often as it is computed. Norms, activations and pooling are
            no multiply-adds, and take the time that their bytes take: where the two ratios differ much, the
            speed-up lies between them.
        peak_bytes: The most bytes of activations alive at once, predictions included, and of tensors that are
            made for a row, such as drawn weights, without what drawing takes for a moment; the network's own
            tensors and its inputs excluded.
        prior: The same of the prior networks; None where there are none.

    Numbers are None where the data flow cannot be read.
    """

    rows: int
    reason: str = ""
    together: int = 1
    draws: int = 0
    shared: tuple[str, ...] = ()
    common: float = 0.0
    forks: tuple[Fork, ...] = ()
    layer_calls: Saving | None = None
    multiply_adds: Saving | None = None
    written_bytes: Saving | None = None
    peak_bytes: Saving | None = None
    prior: "Explanation | None" = None

    def __str__(self) -> str:
        rows = f"{self.rows} rows" + f" for {self.draws} draws" * (self.draws > self.rows)
        lines = [f"{rows}, {self.together} at a time"]
        if self.reason:
            lines = [f"{rows}, one after the other: {self.reason}"]
        numbers = [
            ("layer calls", self.layer_calls),
            ("multiply-adds", self.multiply_adds),
            ("activations, bytes", self.written_bytes),
            ("peak activations, bytes", self.peak_bytes),
        ]
        if self.multiply_adds:
            lines.append(f"{'':<26}{'planned':>18}{'without sharing':>18}{'ratio':>9}")
        for name, saving in numbers:
            if saving:
                lines.append(f"{name:<26}{saving.planned:>18,}{saving.alone:>18,}{saving.ratio:>9.2f}")
        if self.shared:
            lines.append(f"once for all: {_some(self.shared)} ({self.common:.0%} of a row's multiply-adds)")
        if self.forks:
            forks = [f"{fork.layer} ({fork.values} → {fork.runs})" for fork in self.forks]
            lines.append("rows part at: " + _some(forks))
        if self.prior:
            lines.append(f"prior networks: {self.prior}")
        return "\n".join(lines)


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + f" and {more} more" * (more > 0)


def explain(
    runner: Runner, binding: Binding, rows: Sequence[Any], inputs: Inputs, memory: int | None = None
) -> Explanation:
    """What rows share on one batch in eval mode; nothing runs but what reading the data flow needs.

    Args:
        runner: The code.
        binding: The tensors of all rows.
        rows: The rows.
        inputs: One batch.
        memory: The most bytes of activations that may be alive at once.
    """
    if binding.at_once:
        return _explain_at_once(runner, binding, rows, inputs)
    planned = runner.planned_rows(binding, rows, inputs, memory)
    prior = None
    if binding.prior is not None:
        prior = explain(runner.prior_runner, binding.prior, rows, inputs, memory)
    if planned is None:
        draws = binding.count_draws(rows)
        return Explanation(len(rows), runner.planner.reason, draws=draws, prior=prior)
    plan, count, calls = planned.plan, len(rows), planned.plan.program.calls
    work = {node: weight.multiply_adds for node, weight in planned.weights.items()}
    written = {node: weight.bytes for node, weight in planned.weights.items()}
    names = {node: _name(node, planned) for node in plan.program.steps}
    alone = _peak_alone(planned, inputs)
    several = {names[node] for node in calls if plan.count(node) > 1}
    once = dict.fromkeys(names[node] for node in calls if names[node] not in several)
    first = sum(work[node] for node in work if plan.count(node) == 1)
    return Explanation(
        count,
        runner.why_alone(binding, planned, inputs, memory),
        planned.size,
        binding.count_draws(rows),
        tuple(once) if count > 1 else (),
        first / max(sum(work.values()), 1) if count > 1 else 0.0,
        _forks(plan, names),
        Saving(sum(map(plan.count, calls)), count * len(calls)),
        _saving(plan, work, count),
        _saving(plan, written, count),
        Saving(planned.peak(inputs) if plan.shares else alone, alone),
        prior,
    )


def _explain_at_once(runner: Runner, binding: Binding, rows: Sequence[Any], inputs: Inputs) -> Explanation:
    """Of rows that one run gives: it is counted with all of them, and with each alone, for one sample."""
    one = inputs.take(slice(0, 1))

    def work(some: Sequence[Any]) -> int:
        with torch.no_grad(), Meter() as meter:
            runner(binding, some, one, modes=runner.eval_modes)
        return int(inputs.batch * meter.multiply_adds)

    saving = Saving(work(rows), sum(work([row]) for row in rows))
    return Explanation(len(rows), together=len(rows), draws=len(rows), multiply_adds=saving)


def _saving(plan: ExecutionPlan, each: Mapping[Node, int], rows: int) -> Saving:
    """Of numbers that every version of a step's value costs."""
    return Saving(sum(plan.count(node) * one for node, one in each.items()), rows * sum(each.values()))


def _name(node: Node, planned: Planned) -> str:
    name = layer_of(node).removeprefix(planned.stage.prefix.removesuffix(".")).removeprefix(".")
    return name or "the network itself"


def _forks(plan: ExecutionPlan, names: Mapping[Node, str]) -> tuple[Fork, ...]:
    found, followed = dict[str, Fork](), plan.program.from_inputs
    for node in plan.program.steps:
        values = max((plan.count(one) for one in node.all_input_nodes if one in followed), default=1)
        if node in followed and plan.count(node) > values:
            found.setdefault(names[node], Fork(names[node], plan.count(node), values))
    return tuple(found.values())


def _peak_alone(planned: Planned, inputs: Inputs) -> int:
    """Of rows one after the other: one row beside the predictions of the others, then all of them joined."""
    one = ExecutionPlan(planned.plan.program, [{}])
    peak, prediction = weigh_plan(one, 1, planned.tensors(), inputs)
    rows = len(planned.rows)
    return max(peak + (rows - 1) * prediction, 2 * rows * prediction) + planned.drawn_bytes([0])
