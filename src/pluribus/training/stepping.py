"""Take the steps of an epoch: batches in a seeded order, gradients, clipping, optimizer, running mean."""

import math
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from pluribus.data.batch import Batch
from pluribus.data.task import Task
from pluribus.ensemble import Ensemble
from pluribus.errors import PluribusError
from pluribus.mechanisms.network.batches import accepted_by
from pluribus.mechanisms.network.dry_run import derived_seed
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.share import ALONE, OneOfSeveral, Share
from pluribus.training.augment import Augment, change_images, generator_of, mix_samples
from pluribus.training.averaging import update_mean
from pluribus.training.checkpoint import Progress
from pluribus.training.clipping import clip_gradients
from pluribus.training.one_cpu import OneCPU
from pluribus.training.processes import copy_random, needs_whole_batches
from pluribus.training.progress import Show
from pluribus.training.settings import Training
from pluribus.training.smoothing import class_shares, smooth_labels

if TYPE_CHECKING:
    from lightning_fabric import Fabric

SEEDS = 2**63
"""How many seeds torch takes; a larger one is folded into them."""


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
        self.share: Share = ALONE
        self.reads_whole = False
        if fabric.world_size > 1:
            self.reads_whole = needs_whole_batches(ensemble, task, training, fabric.world_size)
            self.share = OneOfSeveral(fabric.global_rank, fabric.world_size, taken=not self.reads_whole)

    def run_epoch(self, now: Progress, bar: Show) -> float:
        """Take the steps of the next epoch and return the mean loss."""
        self.model.train()
        first, end = self.budget.done(now.epoch), self.budget.done(now.epoch + 1)
        orders = self.ensemble.method.data_orders
        batches = step_batches(self.task, self.training, now.epoch, self.fabric, orders, self.reads_whole)
        losses = []
        for step, parts in enumerate(islice(batches, end - first), first):
            copy_random(self.fabric)
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
        samples, total = sum(map(len, parts)), torch.zeros((), device=self.fabric.device)
        for batch in parts:
            loss = self._loss(batch, progress)
            # By its share of the samples: the last batch of an epoch may be smaller than the others.
            loss = loss if len(parts) == 1 else loss * (len(batch) / samples)
            self.fabric.backward(loss)
            total = total + loss.detach()
        if self.training.clip is not None:
            clip_gradients(self.ensemble, self.training.clip, self.model, self.optimizer, self.fabric)
        self.optimizer.step()
        self.ensemble.after_step((step + 1) / self.budget.steps)
        return total

    def _loss(self, batch: Batch, progress: float) -> Tensor:
        """Return the objective of a batch with its weights."""
        target = smooth_labels(batch.target, self.task.classes, self.training.label_smoothing)
        options: dict[str, Any] = {"progress": progress, "dataset_size": len(self.task.train)}
        weights = self.task.training_weights(batch)
        if weights is not None:
            options["weights"] = weights
        if self.share is not ALONE:
            options["share"] = self.share
        inputs = accepted_by(batch.inputs, self.ensemble.members.code.forward)
        loss: Tensor = self.model.loss(inputs, target, **options)
        return loss


def step_batches(
    task: Task,
    training: Training,
    epoch: int,
    fabric: "Fabric | OneCPU",
    orders: int,
    whole: bool = False,
) -> Iterator[list[Batch]]:
    """Yield the batches of each step of one epoch, in an order that depends on seed and epoch alone.

    Samples with an order of their own, such as those of a loader with a user's sampler, keep it.

    Each of several processes takes its share of every batch, or all of it if `whole` is set. If a method has
    several orders of the samples, a batch holds a batch of each order, one after the other. Images are
    augmented and labels smoothed.
    """
    seed = (training.seed * 1_000_003 + epoch) % SEEDS
    seeds = [seed, *(derived_seed(seed, order) for order in range(1, orders))]
    generators = [torch.Generator().manual_seed(one) for one in seeds]
    mine = slice(None) if whole else slice(fabric.global_rank, None, fabric.world_size)
    waiting: list[Batch] = []
    # Random changes follow from the whole batch, whatever part of it this process takes.
    part = mine if training.augment is None else slice(None)
    for number, batch in enumerate(task.train.read(training.batch, generators, epoch, part)):
        if training.augment is not None:
            parts = _orders_of(batch, orders)
            made = []
            for order, one in enumerate(parts):
                generator = generator_of(seed, number, order, training.augment)
                made.append(augmented(one, task, training.augment, generator).take(mine))
            batch = _joined(made)
        waiting.append(batch.to(fabric.device))
        if len(waiting) == training.accumulate:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _orders_of(batch: Batch, orders: int) -> list[Batch]:
    """Return the batch of each order, of which a batch holds one after the other."""
    size = len(batch) // orders
    return [batch.take(slice(order * size, (order + 1) * size)) for order in range(orders)]


def _joined(parts: list[Batch]) -> Batch:
    """Return the batches of all orders as one."""
    inputs = Inputs.joined([part.inputs for part in parts])
    weights = [part.weights for part in parts if part.weights is not None]
    target = torch.cat([part.target for part in parts])
    return Batch(inputs, target, torch.cat(weights) if weights else None)


def augmented(batch: Batch, task: Task, augment: Augment, generator: torch.Generator) -> Batch:
    """Return a batch with changed images, and mixed ones with mixed targets.

    Args:
        batch: Images and their targets.
        task: The data, for the number of classes.
        augment: The settings.
        generator: Of the random numbers.
    """
    x, target = change_images(batch.x, augment, generator), batch.target
    if augment.mixes:
        # Class numbers cannot be mixed.
        if task.classes is not None and not target.is_floating_point():
            target = class_shares(target, task.classes)
        x, target = mix_samples(x, target, augment, generator)
    return Batch(Inputs.of(x), target, batch.weights)


def finite_mean(losses: list[Tensor], epoch: int) -> float:
    """Return the mean of the losses of an epoch; raise `PluribusError` if it is not finite."""
    value = torch.stack(losses).mean().item()
    if not math.isfinite(value):
        raise PluribusError(
            f"the loss must stay finite, got {value} in epoch {epoch}. "
            "Lower lr, set clip, or normalise the inputs."
        )
    return value
