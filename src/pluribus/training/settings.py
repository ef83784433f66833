"""Training: the settings of a training, as a value."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from pluribus.settings import LARGEST, Settings, setting
from pluribus.training.schedules import SCHEDULES

MOST_STEPS = 1_000_000_000

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


@dataclass(frozen=True)
class Training(Settings):
    """Settings of a training: its length, its optimizer, and the weights that it keeps.

    Args:
        epochs: Passes over the training set, at least 1.
        batch: Samples in a step, at least 1.
        optimizer: `adam`, `adamw` or `sgd` (with `momentum`).
        lr: Learning rate at the height of the schedule, above 0.
        weight_decay: At least 0. Methods may exclude parameters from it.
        momentum: Momentum of `sgd`, in [0, 1).
        schedule: `constant`, `linear` or `cosine` (both to 0), or `steps` (a tenth after 1/2 and 3/4).
        warmup: Share of training in which the learning rate rises from 0, in [0, 1).
        clip: Greatest norm of the gradient, or of each member's gradient if members share nothing; None does
            not clip.
        keep: The weights kept at the end: `best` on the validation set by negative log-likelihood, or
            `last`. Without a validation set the last are kept.
        patience: Epochs without a better validation score after which training stops; None never stops.
        seed: Seed of the order of samples and of everything random in training.
    """

    epochs: int = setting(30, at_least=1, at_most=MOST_STEPS)
    batch: int = setting(64, at_least=1, at_most=MOST_STEPS)
    optimizer: str = setting("adam", choices=OPTIMIZERS)
    lr: float = setting(1e-3, above=0, at_most=LARGEST)
    weight_decay: float = setting(0.0, at_least=0, at_most=LARGEST)
    momentum: float = setting(0.9, at_least=0, below=1)
    schedule: str = setting("cosine", choices=SCHEDULES)
    warmup: float = setting(0.0, at_least=0, below=1)
    clip: float | None = setting(None, kind=float, above=0)
    keep: str = setting("best", choices=("best", "last"))
    patience: int | None = setting(None, kind=int, at_least=1)
    # Any seed is folded into what torch takes.
    seed: int = setting(0, at_least=0, at_most=math.inf)

    def make_optimizer(self, groups: list[dict[str, Any]]) -> Optimizer:
        """Return the optimizer of these parameter groups."""
        options = {"momentum": self.momentum} if self.optimizer == "sgd" else {}
        return OPTIMIZERS[self.optimizer](groups, lr=self.lr, **options)

    def rate(self, progress: float) -> float:
        """Return the learning rate when `progress`, in [0, 1], of training is done."""
        rising = 1.0
        if self.warmup:
            rising = min(1.0, progress / self.warmup)
        return self.lr * rising * SCHEDULES[self.schedule](progress)
