"""Several processes that train one ensemble: keep alike what each of them has for itself.

Gradients are averaged by Fabric, so weights stay equal. Random numbers, running statistics and checkpoints
come from the first process.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from pluribus.data.task import Task
from pluribus.ensemble import Ensemble
from pluribus.errors import PluribusError
from pluribus.mechanisms.network.dry_run import seeded
from pluribus.training.one_cpu import OneCPU
from pluribus.training.settings import Training

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Result = TypeVar("Result")

TORCHRUN = "TORCHELASTIC_RUN_ID"
"""Environment variable that torchrun sets."""


def launched_processes(devices: Any) -> tuple[int, Any]:
    """Return how many machines there are, and the devices of each.

    Args:
        devices: The number that the user asked for, or a list. Under torchrun, 1 stands for as many as
            torchrun started on each machine.
    """
    if TORCHRUN not in os.environ or devices not in (1, "1"):
        return 1, devices
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return int(os.environ.get("WORLD_SIZE", "1")) // here, here


def needs_whole_batches(ensemble: Ensemble, task: Task, training: Training, processes: int) -> bool:
    """Return whether every process reads all samples of a batch, instead of its share alone."""
    samples = task.train.samples
    last = len(task.train) % training.batch
    # A process without a sample, or without a common share of accumulated batches, could not take part.
    uneven = 0 < last < processes or training.batch < processes or training.accumulate > 1
    if uneven or samples.own_order:
        return True
    inputs = task.train.example(1).inputs
    # Samples of several inputs may depend on one another, which the loss checks with the whole batch.
    return len(inputs.args) + len(inputs.keywords) > 1 or assigns_samples(ensemble)


def assigns_samples(ensemble: Ensemble) -> bool:
    """Return whether the method gives members parts of a batch, so that all of it must be known."""
    with seeded(0):
        rows = ensemble.members.index.rows(training=True)
        return ensemble.method.assign(2 * len(rows), rows, 0.0) is not None


def copy_random(fabric: "Fabric | OneCPU") -> None:
    """Set the random generators to the state of the first process.

    Draws of members and of weights are then alike everywhere. They would drift apart where a network draws
    numbers for each of its samples, as Dropout does, and shares of a batch differ in size.
    """
    if fabric.world_size == 1:
        return
    torch.set_rng_state(_from_first(torch.get_rng_state(), fabric.device).cpu())
    if fabric.device.type == "cuda":
        own = torch.cuda.get_rng_state(fabric.device)
        torch.cuda.set_rng_state(_from_first(own, fabric.device).cpu(), fabric.device)


def copy_buffers(ensemble: Ensemble, fabric: "Fabric | OneCPU") -> None:
    """Set buffers, such as running statistics, to those of the first process.

    Processes must agree on the validation score, or one of them stops earlier and the others wait for ever.
    """
    if fabric.world_size == 1:
        return
    for buffer in ensemble.buffers():
        buffer.copy_(_from_first(buffer, fabric.device).to(buffer))


def _from_first(value: Tensor, device: torch.device) -> Tensor:
    """Return the tensor of the first process; all have the same shape and type."""
    # The communication of GPUs moves tensors of GPUs alone.
    sent = value.detach().clone().to(device).contiguous()
    torch.distributed.broadcast(sent, src=0)
    return sent


def from_first(fabric: "Fabric | OneCPU", make: Callable[[], Result]) -> Result:
    """Call a function in the first process, and return its result, or raise its error, in all of them."""
    if isinstance(fabric, OneCPU) or fabric.world_size == 1:
        return make()
    result, error = None, None
    if fabric.is_global_zero:
        try:
            result = make()
        except PluribusError as raised:
            error = raised
    result, error = fabric.broadcast((result, error))
    if error is not None:
        raise error
    return result  # type: ignore[return-value]
