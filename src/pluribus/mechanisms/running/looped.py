"""Looped: one row after the other, which works for every network."""

from torch import Tensor

from pluribus.mechanisms.running.engine import Engine, Job


class Looped(Engine):
    """Run one row after the other."""

    def why_not(self, job: Job) -> str:
        if job.memory is not None:
            return "memory can be bounded by a plan alone"
        return "one run gives all rows" if job.members.code.one_pass else ""

    def run(self, job: Job) -> list[Tensor]:
        tensors, code = job.members.tensors, job.members.code
        # Where all rows see one batch, statistics that they share must count it once.
        once = job.training and job.together and len(job.rows) > 1
        before = {name: buffer.clone() for name, buffer in tensors.statistics().items()} if once else {}
        outputs: list[Tensor] = []
        for row, inputs, own in zip(job.rows, job.each(), tensors.of(job.rows), strict=True):
            if outputs and before:
                own = own | {name: buffer.clone() for name, buffer in before.items()}
            outputs.append(code.call(own, row, inputs, job.modes))
        return outputs
