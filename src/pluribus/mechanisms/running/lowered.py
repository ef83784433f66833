"""Lowered: run rows by a plan of the network's data flow, and run what they have in common once."""

from torch import Tensor

from pluribus.errors import PluribusError
from pluribus.mechanisms.members.caller import CAUGHT, check_batch
from pluribus.mechanisms.running.engine import Engine, Job
from pluribus.mechanisms.running.planner import Planned, planner_of

NOTHING_SHARED = "they have nothing in common"
WHEN_FROZEN = "ensembles of this method run by their data flow when frozen"


class Lowered(Engine):
    """Run the data flow that torch.export reads, each value once per distinct combination of keys."""

    def why_not(self, job: Job) -> str:
        if job.members.code.one_pass:
            return "one run gives all rows"
        # The data flow of eval mode is read, with one input for all rows.
        if any(job.modes) or not job.together:
            return "only in eval mode, for rows that see one batch"
        # A bound of memory can be kept by a plan alone, so then it runs even where it saves nothing.
        bounded = job.memory is not None
        reason = "" if bounded else self._why_not_worth_reading(job)
        if reason:
            return reason
        planned = self._planned(job)
        if isinstance(planned, str):
            return planned
        if not bounded and not planned.plan.shares:
            return NOTHING_SHARED
        job.planned = planned
        return ""

    def _why_not_worth_reading(self, job: Job) -> str:
        """Return why a plan would not pay, as far as that is known before the slow export."""
        members = job.members
        # Frozen ensembles are graphs; live ones read their data flow only if their method says so.
        if not members.lowers:
            return WHEN_FROZEN
        if len(job.rows) < 2:
            return "there is one row"
        return ""

    def _planned(self, job: Job) -> Planned | str:
        """Return the plan of the rows, or why there is none."""
        try:
            return planner_of(job.members)(job.rows, job.inputs[0], job.memory)
        except PluribusError:
            raise
        # Inputs that do not fit, as those on another device, fail in the loop with a better message.
        except CAUGHT as error:
            return f"{type(error).__name__}: {error}"

    def run(self, job: Job) -> Tensor:
        (inputs,) = job.inputs
        outputs: Tensor = job.planned(inputs)
        check_batch(outputs.shape[1:], inputs)
        return outputs
