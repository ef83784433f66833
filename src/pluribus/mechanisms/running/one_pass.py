"""OnePass: one run of a network with exits gives all rows."""

from torch import Tensor

from pluribus.mechanisms.exits.code import TappedCode
from pluribus.mechanisms.running.engine import Engine, Job


class OnePass(Engine):
    """Run the network once, up to the deepest exit."""

    def why_not(self, job: Job) -> str:
        if not job.members.code.one_pass:
            return "rows need a run each"
        return "" if job.memory is None else "memory can be bounded by a plan alone"

    def run(self, job: Job) -> Tensor | list[Tensor]:
        code = job.members.code
        assert isinstance(code, TappedCode)
        tensors = job.members.tensors.of_one(job.rows[0])
        parts = job.inputs if job.together else code.parts_of(job.rows, job.inputs)
        outputs = code.call_all(tensors, job.rows, parts, job.modes, job.watch)
        return outputs if job.together else list(outputs)
