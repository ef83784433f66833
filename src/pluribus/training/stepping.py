"""Take the steps of an epoch: batches in a seeded order, gradients, clipping, optimizer, running mean."""

import math
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from pluribus.data.task import Task
from pluribus.ensemble import Ensemble
from pluribus.errors import PluribusError
from pluribus.mechanisms.network.dry_run import derived_seed
from pluribus.training.augment import change_images, generator_of, mix_samples
from pluribus.training.averaging import update_mean
from pluribus.training.checkpoint import Progress
from pluribus.training.clipping import clip_gradients
from pluribus.training.one_cpu import OneCPU
from pluribus.training.progress import Show
from pluribus.training.settings import Training
from pluribus.training.smoothing import class_shares, smooth_labels

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Batch = tuple[Tensor, Tensor]


@final
class Stepper:
    """Take the steps of a training.

    Args:
        ensemble: The ensemble that is trained.
        model: The ensemble as `fabric.setup` returned it.
        optimizer: The optimizer as `fabric.setup` returned it.
        fabric: Device, precision and processes.
        task: The data.
        training: The settings.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        model: Any,
        optimizer: Any,
        fabric: "Fabric | OneCPU",
        task: Task,
        training: Training,
    ) -> None:
        self.ensemble, self.model, self.optimizer = ensemble, model, optimizer
        self.fabric, self.task, self.training = fabric, task, training
        self.budget = training.budget(len(task.train))

    def run_epoch(self, now: Progress, bar: Show) -> float:
        """Take the steps of the next epoch and return the mean loss."""
        self.model.train()
        first, end = self.budget.done(now.epoch), self.budget.done(now.epoch + 1)
        orders = self.ensemble.method.data_orders
        batches = step_batches(self.task, self.training, now.epoch, self.fabric, orders)
        losses = []
        for step, parts in enumerate(islice(batches, end - first), first):
            losses.append(self.take_step(step, parts))
            if now.mean_weights:
                update_mean(now.mean_weights, self.ensemble, step, self.training.ema)
            bar.advance()
        return finite_mean(losses, now.epoch + 1)

    def take_step(self, step: int, parts: list[Batch]) -> Tensor:
        """Take one step on the batches whose gradients it accumulates, and return its loss."""
        progress = step / self.budget.steps
        for group in self.optimizer.param_groups:
            group["lr"] = self.training.rate(progress)
        self.optimizer.zero_grad()
        samples, total = sum(len(y) for _, y in parts), torch.zeros((), device=self.fabric.device)
        for x, y in parts:
            loss = self.model.loss(x, y, progress=progress, dataset_size=len(self.task.train))
            # By its share of the samples: the last batch of an epoch may be smaller than the others.
            loss = loss if len(parts) == 1 else loss * (len(y) / samples)
            self.fabric.backward(loss)
            total = total + loss.detach()
        if self.training.clip is not None:
            clip_gradients(self.ensemble, self.training.clip, self.model, self.optimizer, self.fabric)
        self.optimizer.step()
        self.ensemble.after_step((step + 1) / self.budget.steps)
        return total


def step_batches(
    task: Task, training: Training, epoch: int, fabric: "Fabric | OneCPU", orders: int
) -> Iterator[list[Batch]]:
    """Yield the batches of each step of one epoch, in an order that depends on seed and epoch alone.

    Each of several processes takes its share of every batch. If a method has several orders of the samples, a
    batch holds a batch of each order, one after the other. Images are augmented and labels smoothed.
    """
    seed = training.seed * 1_000_003 + epoch
    seeds = [seed, *(derived_seed(seed, order) for order in range(1, orders))]
    drawn = [task.train.batches(training.batch, torch.Generator().manual_seed(one)) for one in seeds]
    mine = slice(fabric.global_rank, None, fabric.world_size)
    waiting: list[Batch] = []
    for number, batches in enumerate(zip(*drawn, strict=True)):
        made = []
        for order, (inputs, targets) in enumerate(batches):
            generator = generator_of(seed, number, order, training.augment)
            made.append(make_batch(inputs, targets, task, training, generator))
        x = torch.cat([inputs[mine] for inputs, _ in made])
        y = torch.cat([targets[mine] for _, targets in made])
        waiting.append((x.to(fabric.device), y.to(fabric.device)))
        if len(waiting) == training.accumulate:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def make_batch(x: Tensor, y: Tensor, task: Task, training: Training, generator: torch.Generator) -> Batch:
    """Return a batch with augmented images and smoothed labels.

    Args:
        x: The inputs.
        y: Their targets.
        task: The data, for the number of classes.
        training: The settings.
        generator: Of the random numbers of augmentation.
    """
    augment = training.augment
    target = smooth_labels(y, task.classes, training.label_smoothing)
    if augment is None:
        return x, target
    x = change_images(x, augment, generator)
    if not augment.mixes:
        return x, target
    # Class numbers cannot be mixed; smoothed labels are shares already.
    if task.classes is not None and not target.is_floating_point():
        target = class_shares(target, task.classes)
    return mix_samples(x, target, augment, generator)


def finite_mean(losses: list[Tensor], epoch: int) -> float:
    """Return the mean of the losses of an epoch; raise `PluribusError` if it is not finite."""
    value = torch.stack(losses).mean().item()
    if not math.isfinite(value):
        raise PluribusError(
            f"the loss must stay finite, got {value} in epoch {epoch}. "
            "Lower lr, set clip, or normalise the inputs."
        )
    return value
