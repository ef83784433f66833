"""Lowered: rows run by a plan of the network's data flow, and what they have in common runs once."""

from torch import Tensor

from pluribus.errors import PluribusError
from pluribus.mechanisms.members.caller import CAUGHT, check_batch
from pluribus.mechanisms.running.engine import Engine, Job
from pluribus.mechanisms.running.planner import Planned, planner_of

NOTHING_SHARED = "they have nothing in common"
WHEN_FROZEN = "ensembles of this method run by a plan when frozen"


class Lowered(Engine):
    """Run the data flow that torch.export reads, each value once per distinct combination of keys."""

    def why_not(self, job: Job) -> str:
        members = job.members
        if members.code.one_pass:
            return "one run gives all rows"
        if any(job.modes) or not job.together:
            return "only in eval mode, for rows that see one batch"
        reason = self._why_not_worth_it(job) if job.memory is None else ""
        if reason:
            return reason
        planned = self._planned(job)
        if isinstance(planned, str):
            return planned
        if job.memory is None and not planned.plan.shares:
            return NOTHING_SHARED
        job.planned = planned
        return ""

    def _why_not_worth_it(self, job: Job) -> str:
        """Return why reading the data flow, which takes a second, would not pay."""
        members = job.members
        if not members.lowers and not members.frozen:
            return WHEN_FROZEN
        if len(job.rows) < 2:
            return "there is one row"
        hopeless = not members.lowers and planner_of(members).is_hopeless(job.rows)
        return NOTHING_SHARED if hopeless else ""

    def _planned(self, job: Job) -> Planned | str:
        try:
            return planner_of(job.members)(job.rows, job.inputs[0], job.memory)
        except PluribusError:
            raise
        except CAUGHT as error:  # inputs that do not fit, as those on another device: the loop tells which
            return f"{type(error).__name__}: {error}"

    def run(self, job: Job) -> Tensor:
        (inputs,) = job.inputs
        outputs: Tensor = job.planned(inputs)
        check_batch(outputs.shape[1:], inputs)
        return outputs
