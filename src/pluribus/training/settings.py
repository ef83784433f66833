"""Training: how an ensemble is trained, as a value."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from pluribus.settings import Settings, number, one_of, positive, whole
from pluribus.training.schedules import SCHEDULES

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


@dataclass(frozen=True)
class Training(Settings):
    """How long, by which steps, and what is kept.

    Args:
        epochs: Passes over the training set, at least 1.
        batch: Samples in a step, at least 1.
        optimizer: `adam`, `adamw` or `sgd` (with `momentum`).
        lr: Learning rate at the height of the schedule, above 0.
        weight_decay: At least 0; a method's exceptions are seen to.
        momentum: Of `sgd`, in [0, 1).
        schedule: `constant`, `linear` or `cosine` (both to 0), or `steps` (a tenth after 1/2 and 3/4).
        warmup: Share of training in which the learning rate rises from 0, in [0, 1).
        clip: Greatest norm of the gradient, of each member's where members train separately; None does not
            clip.
        keep: The weights kept at the end: `best` on the validation set by negative log-likelihood, or
            `last`. Without a validation set it is the last.
        patience: Stops after that many epochs without a better validation score; None never does.
        seed: Of the order of samples and all that is random in training.
    """

    epochs: int = 30
    batch: int = 64
    optimizer: str = "adam"
    lr: float = 1e-3
    weight_decay: float = 0.0
    momentum: float = 0.9
    schedule: str = "cosine"
    warmup: float = 0.0
    clip: float | None = None
    keep: str = "best"
    patience: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        whole("epochs", self.epochs)
        whole("batch", self.batch)
        one_of("optimizer", self.optimizer, OPTIMIZERS)
        positive("lr", self.lr)
        number("weight_decay", self.weight_decay, least=0)
        number("momentum", self.momentum, least=0, below=1)
        one_of("schedule", self.schedule, SCHEDULES)
        number("warmup", self.warmup, least=0, below=1)
        if self.clip is not None:
            positive("clip", self.clip)
        one_of("keep", self.keep, ("best", "last"))
        if self.patience is not None:
            whole("patience", self.patience)
        whole("seed", self.seed, least=0)

    def make_optimizer(self, groups: list[dict[str, Any]]) -> Optimizer:
        """The optimizer of these parameter groups."""
        options = {"momentum": self.momentum} if self.optimizer == "sgd" else {}
        return OPTIMIZERS[self.optimizer](groups, lr=self.lr, **options)

    def rate(self, progress: float) -> float:
        """The learning rate when `progress`, in [0, 1], of training is done."""
        rising = min(1.0, progress / self.warmup) if self.warmup else 1.0
        return self.lr * rising * SCHEDULES[self.schedule](progress)
