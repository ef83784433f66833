"""Explain: compute what rows share, and what that saves, before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch.fx import Node

from pluribus.mechanisms.graph.cost import Meter
from pluribus.mechanisms.graph.operation import layer_of
from pluribus.mechanisms.masks.code import MaskedCode
from pluribus.mechanisms.members.index import Row
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.prior import AnyMembers, WithPrior
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.batched import Batched
from pluribus.mechanisms.running.engine import Job
from pluribus.mechanisms.running.engines import ENGINES, run_rows
from pluribus.mechanisms.running.lowered import NOTHING_SHARED, WHEN_FROZEN, Lowered
from pluribus.mechanisms.running.plan import ExecutionPlan
from pluribus.mechanisms.running.planner import Planned, planner_of
from pluribus.mechanisms.running.simulate import StepCost, simulate_plan

SHOWN = 8
"""Layers that are printed of a list: more do not fit on two lines of a terminal."""


@dataclass(frozen=True)
class Saving:
    """A number with shared execution, and one row at a time."""

    planned: int
    alone: int

    @property
    def ratio(self) -> float:
        """Return how many times less it is; 1 where nothing is saved."""
        if not self.planned:
            return 1.0
        return self.alone / self.planned

    def plus(self, other: "Saving") -> "Saving":
        """Return the sum of two numbers."""
        return Saving(self.planned + other.planned, self.alone + other.alone)


@dataclass(frozen=True)
class Fork:
    """A layer where rows part: how often it runs, and how many values come in."""

    layer: str
    runs: int
    values: int


@dataclass(frozen=True)
class Explanation:
    """Describe how rows run; `print` it for a table.

    Attributes:
        rows: How many rows there are.
        reason: Why rows run one after the other; empty where they run by a plan or by one operator for all.
        together: How many rows run at a time.
        draws: How many draws the rows stand for; equal ones are one row.
        shared: Layers with weights that run once for all rows.
        common: The share of a row's multiply-adds that is the same for all rows, in [0, 1].
        forks: Layers where rows part, in the order of the data flow.
        layer_calls: Runs of operators that read parameters.
        multiply_adds: By the conventions of `cost`, with those of `making`, and without prior networks, which
            are apart.
        making: Multiply-adds that make weights in every call, whatever the batch, as products of low-rank
            matrices do; None where they are not counted apart, as in one graph of all rows.
        written_bytes: Bytes of all activations, each as often as it is computed. Norms, activations and
            pooling are no multiply-adds, and take the time that their bytes take: where the two ratios differ
            much, the speed-up lies between them.
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
    making: Saving | None = None
    prior: "Explanation | None" = None
    engines: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        lines = [self._heading(), *self._table()]
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

    def _heading(self) -> str:
        """Return how many rows run, and how many at a time."""
        rows = f"{self.rows} rows"
        if self.draws > self.rows:
            rows += f" for {self.draws} draws"
        if self.reason:
            return f"{rows}, one after the other: {self.reason}"
        return f"{rows}, {self.together} at a time"

    def _table(self) -> list[str]:
        """Return the numbers that are known, one line for each, below a line of titles."""
        numbers = {
            "layer calls": self.layer_calls,
            "multiply-adds": self.multiply_adds,
            # Most methods make no weights.
            "of these, for weights": self.making if self.making and self.making.alone else None,
            "activations, bytes": self.written_bytes,
            "peak activations, bytes": self.peak_bytes,
        }
        lines = list[str]()
        if self.multiply_adds:
            lines.append(f"{'':<26}{'planned':>18}{'without sharing':>18}{'ratio':>9}")
        for name, saving in numbers.items():
            if saving:
                lines.append(f"{name:<26}{saving.planned:>18,}{saving.alone:>18,}{saving.ratio:>9.2f}")
        return lines


def _some(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    text = ", ".join(names[:SHOWN])
    more = len(names) - SHOWN
    if more > 0:
        text += f" and {more} more"
    return text


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
    if isinstance(members, WithPrior):
        learnt, prior = members.learnt, explain(members.prior, rows, inputs, memory)
    else:
        learnt, prior = members, None
    job = Job(learnt, tuple(rows), (inputs,), learnt.code.caller.eval_modes, memory)
    engines = _considered(job)
    # Exits of one run have no plan: they are one run already.
    if learnt.code.one_pass:
        return replace(explain_one_pass(learnt, rows, inputs), engines=engines)
    planned = planner_of(learnt)(job.rows, inputs, memory)
    # The engine that runs is the last one; a plan keeps a bound of memory, whatever else could run.
    runs = Lowered.__name__ if memory is not None else engines[-1][0]
    if isinstance(planned, str):
        draws = learnt.index.count_draws(rows)
        found = Explanation(len(rows), planned, draws=draws)
    elif runs == Lowered.__name__:
        found = _explain_plan(job, planned)
    else:
        found = _explain_rows(job, planned, batched=runs == Batched.__name__)
    return replace(found, prior=prior, engines=engines)


def _considered(job: Job) -> tuple[tuple[str, str], ...]:
    """Return the engines up to the one that runs, each with the reason against it."""
    found = []
    for engine in ENGINES:
        reason = engine.why_not(job)
        found.append((engine.name, reason))
        if not reason:
            break
    return tuple(found)


def explain_steps(
    plan: ExecutionPlan, costs: Mapping[Node, StepCost], batch: int, together: int, draws: int, prefix: str
) -> Explanation:
    """Return what the rows of a plan share, for one sample; `making` is apart, and for any batch.

    Args:
        plan: The plan.
        costs: Of each step, for one row and a whole batch.
        batch: How many samples that is.
        together: How many rows run at a time.
        draws: How many draws the rows stand for.
        prefix: What names of layers begin with in the program.
    """
    every = {node: cost.multiply_adds for node, cost in costs.items()}
    # Weights are computed once, however many samples there are.
    made = _of_weights(plan, every)
    work = {node: cost // batch for node, cost in every.items() if node not in made}
    written = {node: cost.bytes // batch for node, cost in costs.items()}
    names = {node: _name(node, prefix) for node in plan.program.steps}
    rows, calls = len(plan.versions[plan.program.steps[-1]]) if plan.program.steps else 1, plan.program.calls
    shared, common = _shared_by_all(plan, names, work) if rows > 1 else ((), 0.0)
    return Explanation(
        rows=rows,
        together=together,
        draws=draws,
        shared=shared,
        common=common,
        forks=_forks(plan, names),
        layer_calls=Saving(sum(map(plan.count, calls)), rows * len(calls)),
        multiply_adds=_saving(plan, work, rows),
        written_bytes=_saving(plan, written, rows),
        making=_saving(plan, made, rows),
    )


def with_prior(learnt: Explanation, prior: Explanation) -> Explanation:
    """Return what rows cost together with their prior networks, which one graph runs too.

    Args:
        learnt: Of the rows.
        prior: Of their prior networks.
    """

    def both(one: Saving | None, other: Saving | None) -> Saving | None:
        return None if one is None or other is None else one.plus(other)

    return replace(
        learnt,
        layer_calls=both(learnt.layer_calls, prior.layer_calls),
        multiply_adds=both(learnt.multiply_adds, prior.multiply_adds),
        written_bytes=both(learnt.written_bytes, prior.written_bytes),
        making=both(learnt.making, prior.making),
    )


def _explain_plan(job: Job, planned: Planned) -> Explanation:
    """Return what rows share that run by a plan.

    Args:
        job: The rows and their inputs.
        planned: The plan of these rows.
    """
    plan, count, calls = planned.plan, len(job.rows), planned.plan.program.calls
    work = {node: cost.multiply_adds for node, cost in planned.weights.items()}
    written = {node: cost.bytes for node, cost in planned.weights.items()}
    names = {node: _name(node, planned.code.prefix) for node in plan.program.steps}
    # Rows that bring new tensors make all of theirs.
    made, bound = _made(planned), sum(len(block.bound) for block in plan.blocks(planned.size))
    before = Saving(bound * made, count * made)
    alone = _peak_alone(planned, job.inputs[0])
    # Without sharing, the plan runs rows one after the other.
    peak = planned.peak(job.inputs[0]) if plan.shares else alone
    shared, common = _shared_by_all(plan, names, work) if count > 1 else ((), 0.0)
    return Explanation(
        rows=count,
        together=planned.size,
        draws=job.members.index.count_draws(job.rows),
        shared=shared,
        common=common,
        forks=_forks(plan, names),
        layer_calls=Saving(sum(map(plan.count, calls)), count * len(calls)),
        multiply_adds=_saving(plan, work, count).plus(before),
        written_bytes=_saving(plan, written, count),
        peak_bytes=Saving(peak, alone),
        making=_saving(plan, _of_weights(plan, work), count).plus(before),
    )


def _explain_rows(job: Job, planned: Planned, batched: bool) -> Explanation:
    """Return what rows cost that share nothing when they run, though a plan of them is known.

    Args:
        job: The rows and their inputs.
        planned: The plan that does not run; it has the costs of a row.
        batched: Whether the rows run at once, and not one after the other.
    """
    count, inputs = len(job.rows), job.inputs[0]
    calls = count * len(planned.plan.program.calls)
    work = {node: cost.multiply_adds for node, cost in planned.weights.items()}
    before = _made(planned)
    of_row, made = before + sum(work.values()), before + sum(_of_weights(planned.plan, work).values())
    written = count * sum(cost.bytes for cost in planned.weights.values())
    alone = _peak_alone(planned, inputs)
    peak = _peak_together(planned, inputs) if batched else alone
    return Explanation(
        rows=count,
        reason="" if batched else _why_no_plan(job, planned),
        together=count if batched else 1,
        draws=job.members.index.count_draws(job.rows),
        layer_calls=Saving(calls, calls),
        multiply_adds=Saving(count * of_row, count * of_row),
        written_bytes=Saving(written, written),
        peak_bytes=Saving(peak, alone),
        making=Saving(count * made, count * made),
    )


def _made(planned: Planned) -> int:
    """Return the multiply-adds that make the tensors of a row, before its steps run."""
    with Meter() as meter:
        planned.tensors()
    return int(meter.multiply_adds)


def _of_weights(plan: ExecutionPlan, work: Mapping[Node, int]) -> dict[Node, int]:
    """Return the multiply-adds of the steps that compute weights, and read no input.

    Args:
        plan: The plan.
        work: By step, its multiply-adds.
    """
    return {node: cost for node, cost in work.items() if node not in plan.program.from_inputs}


def _shared_by_all(
    plan: ExecutionPlan, names: Mapping[Node, str], work: Mapping[Node, int]
) -> tuple[tuple[str, ...], float]:
    """Return the layers that run once for all rows, and their share of a row's multiply-adds.

    Args:
        plan: The plan.
        names: By step, the name of its layer.
        work: By step, its multiply-adds.
    """
    # A layer that is called twice is shared only if both calls are.
    calls = plan.program.calls
    several = {names[node] for node in calls if plan.count(node) > 1}
    once = dict[str, None]()
    for node in calls:
        if names[node] not in several:
            once[names[node]] = None
    first = sum(work[node] for node in work if plan.count(node) == 1)
    return tuple(once), first / max(sum(work.values()), 1)


def _why_no_plan(job: Job, planned: Planned) -> str:
    """Return why rows that could run by a plan run one after the other."""
    if not planned.plan.shares:
        return NOTHING_SHARED
    if isinstance(job.members.code, MaskedCode):
        return "they are cut out by their masks when frozen"
    return WHEN_FROZEN


def explain_one_pass(members: Members, rows: Sequence[Row], inputs: Inputs) -> Explanation:
    """Return what one run costs that gives all rows, with all of them and with each alone."""
    # A sample costs the same in every batch, so one is enough.
    one = inputs.take(slice(0, 1))

    def work(some: Sequence[Row]) -> int:
        with torch.no_grad(), Meter() as meter:
            run_rows(members, some, one)
        return int(inputs.batch * meter.multiply_adds)

    saving = Saving(work(rows), sum(work([row]) for row in rows))
    return Explanation(len(rows), together=len(rows), draws=len(rows), multiply_adds=saving)


def _saving(plan: ExecutionPlan, each: Mapping[Node, int], rows: int) -> Saving:
    """Return the sum of a cost over all steps, with the plan and row by row.

    Args:
        plan: The plan.
        each: By step, the cost of one version of its value.
        rows: How many rows there are.
    """
    planned = sum(plan.count(node) * cost for node, cost in each.items())
    return Saving(planned, rows * sum(each.values()))


def _name(node: Node, prefix: str) -> str:
    """Return the name of a step's layer as the user knows it, without our prefix."""
    name = layer_of(node).removeprefix(prefix.removesuffix(".")).removeprefix(".")
    return name or "the network itself"


def _forks(plan: ExecutionPlan, names: Mapping[Node, str]) -> tuple[Fork, ...]:
    """Return the layers whose values have more versions than the values they read.

    Args:
        plan: The plan.
        names: By step, the name of its layer.
    """
    found, followed = dict[str, Fork](), plan.program.from_inputs
    for node in plan.program.steps:
        # Steps that compute weights alone, as parametrizations do, are no layers.
        if node not in followed:
            continue
        values = max((plan.count(one) for one in node.all_input_nodes if one in followed), default=1)
        if plan.count(node) > values:
            found.setdefault(names[node], Fork(names[node], plan.count(node), values))
    return tuple(found.values())


def _peak_alone(planned: Planned, inputs: Inputs) -> int:
    """Return the peak of bytes when rows run one after the other.

    Either the last row runs beside the predictions of all others, or all predictions are joined to one copy.
    """
    peak, prediction = _peak_of_one(planned, inputs)
    rows = len(planned.rows)
    return max(peak + (rows - 1) * prediction, 2 * rows * prediction) + planned.drawn_bytes([0])


def _peak_together(planned: Planned, inputs: Inputs) -> int:
    """Return the peak of bytes when each operator runs for all rows at once."""
    rows = range(len(planned.rows))
    return len(rows) * _peak_of_one(planned, inputs)[0] + planned.drawn_bytes(rows)


def _peak_of_one(planned: Planned, inputs: Inputs) -> tuple[int, int]:
    """Return the peak of bytes of one row without tensors that are made for it, and those of its outputs."""
    one = ExecutionPlan(planned.plan.program, [{}])
    return simulate_plan(one, 1, planned.tensors(), inputs)
