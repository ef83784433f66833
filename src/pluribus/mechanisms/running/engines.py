"""Engines: the ways of running rows, in order. The first one that has no reason against it runs.

Which one that is follows from the method and the network, never from what ran before. Results agree up to
rounding.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.mechanisms.exits.tapped import Watch
from pluribus.mechanisms.members.axis import join
from pluribus.mechanisms.members.index import Row
from pluribus.mechanisms.members.prior import AnyMembers, WithPrior
from pluribus.mechanisms.members.skeleton import Modes
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.batched import Batched
from pluribus.mechanisms.running.engine import Engine, Job
from pluribus.mechanisms.running.looped import Looped
from pluribus.mechanisms.running.lowered import Lowered
from pluribus.mechanisms.running.mixed_batch import MixedBatch
from pluribus.mechanisms.running.one_pass import OnePass

# Small networks are faster batched than by a plan, so that Batched comes before Lowered.
ENGINES: tuple[Engine, ...] = (OnePass(), MixedBatch(), Batched(), Lowered(), Looped())


def run(job: Job) -> Tensor | list[Tensor]:
    """Run rows by the first engine that can."""
    if job.memory is not None:
        reason = Lowered().why_not(job)
        if reason:
            raise InputError(f"memory can be bounded by a plan alone, however: {reason}.")
        return Lowered().run(job)
    for engine in ENGINES:
        if not engine.why_not(job):
            return engine.run(job)
    raise InputError("no engine runs these rows.")  # never: Looped or OnePass runs all


def run_rows(
    members: AnyMembers,
    rows: Sequence[Row],
    inputs: Inputs,
    modes: Modes | None = None,
    memory: int | None = None,
) -> Tensor:
    """Return the outputs of rows on one batch, `[rows, batch, ...]`.

    Args:
        members: Whose rows.
        rows: The rows.
        inputs: One batch.
        modes: The mode of each module of the user's code; all in eval mode.
        memory: The most bytes of activations that may be alive at once.
    """
    learnt = members.learnt if isinstance(members, WithPrior) else members
    modes = learnt.code.caller.eval_modes if modes is None else modes
    outputs = run(Job(learnt, tuple(rows), (inputs,), modes, memory))
    stack = outputs if isinstance(outputs, Tensor) else join(outputs)
    if not isinstance(members, WithPrior):
        return stack
    with torch.no_grad():
        fixed = run_rows(members.prior, rows, inputs, memory=memory)
    return stack + members.scale * fixed


def run_apart(
    members: AnyMembers, rows: Sequence[Row], inputs: Sequence[Inputs], modes: Modes
) -> list[Tensor]:
    """Return the outputs of each row on a batch of its own, or of rows at once on those of their slots."""
    learnt = members.learnt if isinstance(members, WithPrior) else members
    outputs = list(run(Job(learnt, tuple(rows), tuple(inputs), modes)))
    if not isinstance(members, WithPrior):
        return outputs
    prior = members.prior
    with torch.no_grad():
        fixed = run_apart(prior, rows, inputs, prior.code.caller.eval_modes)
    return [one + members.scale * other for one, other in zip(outputs, fixed, strict=True)]


def run_watched(members: AnyMembers, rows: Sequence[Row], inputs: Inputs, watch: Watch) -> None:
    """Run a network with exits in eval mode, calling `watch` at each exit as soon as it is reached."""
    assert not isinstance(members, WithPrior)
    run(Job(members, tuple(rows), (inputs,), members.code.caller.eval_modes, watch=watch))


def run_slowly(members: AnyMembers, rows: Sequence[Row], inputs: Inputs) -> Tensor:
    """Return the outputs of rows in eval mode by the way that needs no proof, one row after the other."""
    learnt = members.learnt if isinstance(members, WithPrior) else members
    job = Job(learnt, tuple(rows), (inputs,), learnt.code.caller.eval_modes)
    engine = OnePass() if learnt.code.one_pass else Looped()
    outputs = engine.run(job)
    stack = outputs if isinstance(outputs, Tensor) else join(outputs)
    if not isinstance(members, WithPrior):
        return stack
    return stack + members.scale * run_slowly(members.prior, rows, inputs)
