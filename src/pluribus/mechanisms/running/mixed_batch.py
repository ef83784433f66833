"""MixedBatch: samples of several rows share one training batch, each with its own row's tensors."""

import torch
from torch import Tensor

from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.engine import Engine, Job


class MixedBatch(Engine):
    """Run all samples of all rows at once; statistics are those of all of them."""

    def why_not(self, job: Job) -> str:
        if not job.training:
            return "only in train mode"
        if job.members.code.one_pass:
            return "one run gives all rows"
        return job.members.tensors.why_not_mixed(job.rows)

    def run(self, job: Job) -> list[Tensor]:
        each = job.each()
        sizes = [one.batch for one in each]
        tensors = job.members.tensors.mixed(job.rows, sizes)
        outputs = job.members.code.call(tensors, None, Inputs.joined(each), job.modes)
        return list(torch.split(outputs, sizes))
