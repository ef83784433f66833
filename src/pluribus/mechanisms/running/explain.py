"""What rows share and what that saves, before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch.fx import Node

from pluribus.mechanisms.graph.cost import Meter
from pluribus.mechanisms.graph.export import layer_of
from pluribus.mechanisms.masks.code import MaskedCode
from pluribus.mechanisms.members.index import Row
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.prior import AnyMembers, WithPrior
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.batched import Batched
from pluribus.mechanisms.running.engine import Job
from pluribus.mechanisms.running.engines import ENGINES, run_rows
from pluribus.mechanisms.running.lowered import NOTHING_SHARED, WHEN_FROZEN
from pluribus.mechanisms.running.plan import ExecutionPlan
from pluribus.mechanisms.running.planner import Planned, planner_of
from pluribus.mechanisms.running.simulate import simulate_plan

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
        engines: The ways of running rows that were considered, each with the reason against it; the last one
            runs and has none.

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
    engines: tuple[tuple[str, str], ...] = ()

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
        for name, reason in self.engines:
            lines.append(f"{name}: {reason or 'runs'}")
        if self.prior:
            lines.append(f"prior networks: {self.prior}")
        return "\n".join(lines)


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + f" and {more} more" * (more > 0)


def explain(
    members: AnyMembers, rows: Sequence[Row], inputs: Inputs, memory: int | None = None
) -> Explanation:
    """Return what rows share on one batch in eval mode, and which engine runs them.

    Nothing runs but what reading the data flow needs.

    Args:
        members: Whose rows.
        rows: The rows.
        inputs: One batch.
        memory: The most bytes of activations that may be alive at once.
    """
    learnt = members.learnt if isinstance(members, WithPrior) else members
    prior = explain(members.prior, rows, inputs, memory) if isinstance(members, WithPrior) else None
    job = Job(learnt, tuple(rows), (inputs,), learnt.code.caller.eval_modes, memory)
    if learnt.code.one_pass:
        return replace(_explain_one_pass(learnt, rows, inputs), engines=_considered(job))
    planned = planner_of(learnt)(job.rows, inputs, memory)
    if isinstance(planned, str):
        draws = learnt.index.count_draws(rows)
        return Explanation(len(rows), planned, draws=draws, prior=prior, engines=_considered(job))
    return replace(_explain_plan(job, planned), prior=prior, engines=_considered(job))


def _considered(job: Job) -> tuple[tuple[str, str], ...]:
    """Return the engines up to the one that runs, each with the reason against it."""
    found = []
    for engine in ENGINES:
        reason = engine.why_not(job)
        found.append((engine.name, reason))
        if not reason:
            break
    return tuple(found)


def _explain_plan(job: Job, planned: Planned) -> Explanation:
    """Return what rows share that could run by a plan."""
    plan, count, calls = planned.plan, len(job.rows), planned.plan.program.calls
    work = {node: weight.multiply_adds for node, weight in planned.weights.items()}
    written = {node: weight.bytes for node, weight in planned.weights.items()}
    names = {node: _name(node, planned) for node in plan.program.steps}
    alone = _peak_alone(planned, job.inputs[0])
    several = {names[node] for node in calls if plan.count(node) > 1}
    once = dict.fromkeys(names[node] for node in calls if names[node] not in several)
    first = sum(work[node] for node in work if plan.count(node) == 1)
    return Explanation(
        count,
        _why_no_plan(job, planned),
        planned.size,
        job.members.index.count_draws(job.rows),
        tuple(once) if count > 1 else (),
        first / max(sum(work.values()), 1) if count > 1 else 0.0,
        _forks(plan, names),
        Saving(sum(map(plan.count, calls)), count * len(calls)),
        _saving(plan, work, count),
        _saving(plan, written, count),
        Saving(planned.peak(job.inputs[0]) if plan.shares else alone, alone),
    )


def _why_no_plan(job: Job, planned: Planned) -> str:
    """Return why rows that could run by a plan do not; empty where they do."""
    if job.memory is not None:
        return ""
    if not planned.plan.shares:
        return NOTHING_SHARED
    if not Batched().why_not(job):
        return "stacked, as the network is small"
    if isinstance(job.members.code, MaskedCode):
        return "they are cut out by their masks when frozen"
    return "" if job.members.lowers or job.members.frozen else WHEN_FROZEN


def _explain_one_pass(members: Members, rows: Sequence[Row], inputs: Inputs) -> Explanation:
    """Return what one run costs that gives all rows, with all of them and with each alone."""
    one = inputs.take(slice(0, 1))

    def work(some: Sequence[Row]) -> int:
        with torch.no_grad(), Meter() as meter:
            run_rows(members, some, one)
        return int(inputs.batch * meter.multiply_adds)

    saving = Saving(work(rows), sum(work([row]) for row in rows))
    return Explanation(len(rows), together=len(rows), draws=len(rows), multiply_adds=saving)


def _saving(plan: ExecutionPlan, each: Mapping[Node, int], rows: int) -> Saving:
    """Of numbers that every version of a step's value costs."""
    return Saving(sum(plan.count(node) * one for node, one in each.items()), rows * sum(each.values()))


def _name(node: Node, planned: Planned) -> str:
    name = layer_of(node).removeprefix(planned.code.prefix.removesuffix(".")).removeprefix(".")
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
    peak, prediction = simulate_plan(one, 1, planned.tensors(), inputs)
    rows = len(planned.rows)
    return max(peak + (rows - 1) * prediction, 2 * rows * prediction) + planned.drawn_bytes([0])
