"""The multiply-adds of a training: what is paid once, before any prediction."""

from torch import Tensor, nn

from pluribus.data.batch import Batch
from pluribus.data.split import CHECKED
from pluribus.data.task import Task
from pluribus.ensemble import Ensemble
from pluribus.mechanisms.graph.cost import cost
from pluribus.mechanisms.network.batches import accepted_by
from pluribus.training.one_cpu import OneCPU
from pluribus.training.settings import Training
from pluribus.training.stepping import step_batches


class Objective(nn.Module):
    """The loss of an ensemble as a forward pass, which `cost` counts."""

    def __init__(self, ensemble: Ensemble, batch: Batch) -> None:
        super().__init__()
        self.ensemble, self.batch = ensemble, batch

    def forward(self) -> Tensor:
        """Return the training objective of the batch."""
        inputs = accepted_by(self.batch.inputs, self.ensemble.members.code.forward)
        return self.ensemble.loss(inputs, self.batch.target, dataset_size=len(self.batch))


def train_multiply_adds(ensemble: Ensemble, task: Task, training: Training, steps: int) -> float:
    """Return the multiply-adds of the forward passes of so many steps. Backward passes take about twice that.

    Args:
        ensemble: As it is trained; its mode and its calibration are the same afterwards.
        task: The data.
        training: How many samples a step has.
        steps: How many steps were taken.
    """
    if task.train.samples.own_order:
        # A step would move the order of the samples.
        parts = [task.train.example(CHECKED)]
    else:
        parts = next(step_batches(task, training, 0, OneCPU(), ensemble.method.data_orders))
    # A loss in train mode drops the calibration, which counting must not.
    mode, calibration = ensemble.training, ensemble.calibration
    ensemble.calibration = None
    ensemble.train()
    try:
        passes = [cost(Objective(ensemble, one.to(ensemble.device))).multiply_adds for one in parts]
    finally:
        ensemble.train(mode)
        ensemble.calibration = calibration
    # The first step of an epoch is a full one; its samples stand for those of all steps.
    budget, samples = training.budget(len(task.train)), sum(map(len, parts))
    orders = ensemble.method.data_orders
    epochs = steps / budget.steps_per_epoch
    return sum(passes) / samples * epochs * len(task.train) * orders
