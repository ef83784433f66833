"""Training: the settings of a training, as a value."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch.optim import Optimizer

from pluribus.axes import Between, OneOf
from pluribus.data.split import Split
from pluribus.errors import SettingError
from pluribus.metrics import METRICS
from pluribus.ranges import LARGEST, invalid
from pluribus.recipe import Recipe
from pluribus.settings import Settings, setting
from pluribus.training.augment import Augment
from pluribus.training.budget import LEAST_EPOCHS, MOST_CHECKS, Budget, make_budget
from pluribus.training.schedules import SCHEDULES, TENTH

MOST_STEPS = 1_000_000_000

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}

SCORES = tuple(name for name, metric in METRICS.items() if metric.against == "target")
"""Metrics that weights may be kept by."""


@dataclass(frozen=True)
class Training(Settings):
    """Settings of a training: its length, its optimizer, and the weights that it keeps.

    Args:
        epochs: Passes over the training set, at least 1. At most one of `epochs` and `steps` is given;
            without both there are 30 epochs, or more if these have fewer than 1000 steps.
        batch: Samples in a forward pass, at least 1.
        optimizer: `adam`, `adamw` or `sgd` (with `momentum`).
        lr: Learning rate at the height of the schedule, above 0.
        weight_decay: At least 0. Methods may exclude parameters from it.
        momentum: Momentum of `sgd`, in [0, 1).
        schedule: `constant`, `linear` or `cosine` (both to 0), or `steps` (times `milestone_factor` at every
            milestone).
        warmup: Share of training in which the learning rate rises from 0, in [0, 1).
        clip: Greatest norm of the gradient, or of each member's gradient if members share nothing; None does
            not clip.
        keep: The weights kept at the end: `best` on the validation set by negative log-likelihood, the best
            by any other metric (`accuracy`, `brier`, `rmse`), or `last`. Without a validation set the last
            are kept.
        patience: Epochs without a better validation score after which training stops; None never stops.
        seed: Seed of the order of samples and of everything random in training.
        steps: Steps of the optimizer, at least 1.
        milestones: Shares of training, ascending in (0, 1), at which the schedule `steps` falls.
        milestone_factor: Factor of the learning rate at a milestone, in (0, 1).
        nesterov: Use Nesterov's momentum in `sgd`.
        label_smoothing: Share of a class label that is spread evenly over all classes, in [0, 1).
        accumulate: Batches whose gradients make one step, at least 1.
        ema: Decay of the running mean of the weights, in [0, 1). The mean is validated and kept instead of
            the weights; 0 has no mean. In the first steps the decay is at most (1 + step) / (10 + step).
        check_every: Epochs between two validations, each of which writes a checkpoint; None is at most 40
            validations in all, and one after every epoch if there is `patience`.
        augment: Random changes of images, an `Augment`; None has none.
    """

    epochs: int | None = setting(None, kind=int, at_least=1, at_most=MOST_STEPS)
    batch: int = setting(64, at_least=1, at_most=MOST_STEPS, search=OneOf((32, 64, 128)))
    optimizer: str = setting("adam", choices=OPTIMIZERS)
    lr: float = setting(1e-3, above=0, at_most=LARGEST, search=Between(1e-4, 3e-2, log=True))
    weight_decay: float = setting(0.0, at_least=0, at_most=LARGEST, search=Between(1e-6, 1e-2, log=True))
    momentum: float = setting(0.9, at_least=0, below=1)
    schedule: str = setting("cosine", choices=SCHEDULES)
    warmup: float = setting(0.0, at_least=0, below=1)
    clip: float | None = setting(None, kind=float, above=0)
    keep: str = setting("best", choices=("best", "last", *SCORES))
    patience: int | None = setting(None, kind=int, at_least=1)
    # Any seed is folded into what torch takes.
    seed: int = setting(0, at_least=0, at_most=math.inf)
    steps: int | None = setting(
        None, kind=int, at_least=1, at_most=MOST_STEPS, search=Between(250, 2000, log=True)
    )
    milestones: tuple[float, ...] = (0.5, 0.75)
    milestone_factor: float = setting(TENTH, above=0, below=1)
    nesterov: bool = setting(False)
    label_smoothing: float = setting(0.0, at_least=0, below=1, search=Between(0.0, 0.2))
    accumulate: int = setting(1, at_least=1, at_most=MOST_STEPS)
    ema: float = setting(0.0, at_least=0, below=1)
    check_every: int | None = setting(None, kind=int, at_least=1, at_most=MOST_STEPS)
    augment: Augment | None = None

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs is not None and self.steps is not None:
            raise SettingError(
                f"epochs and steps exclude each other, got {self.epochs} and {self.steps}. Give one of them."
            )
        # A file holds a list, because JSON has no tuples.
        if isinstance(self.milestones, list):
            object.__setattr__(self, "milestones", tuple(self.milestones))
        if isinstance(self.augment, Mapping):
            object.__setattr__(self, "augment", Augment.from_dict(self.augment))
        if not isinstance(self.augment, Augment | None):
            raise invalid("augment", "an Augment or None", self.augment)
        if not _are_shares(self.milestones):
            raise invalid("milestones", "ascending shares of training above 0 and below 1", self.milestones)
        has_momentum = self.optimizer == "sgd" and self.momentum > 0
        if self.nesterov and not has_momentum:
            raise invalid("nesterov", "False without optimizer='sgd' and a momentum above 0", True)

    @classmethod
    def upgrade(cls, values: dict[str, Any], version: int) -> dict[str, Any]:
        # Without a number of epochs, version 1 meant the default of its time.
        return values if version > 1 else {"epochs": LEAST_EPOCHS, "check_every": 1} | values

    def to_dict(self) -> dict[str, Any]:
        # JSON has no tuples, and what is read back must equal what was written.
        values = super().to_dict() | {"milestones": list(self.milestones)}
        augment = values.pop("augment")
        # Left out where they are as before there were such settings, so that records and checkpoints of
        # that time compare equal.
        if self.milestone_factor == TENTH:
            del values["milestone_factor"]
        return values if augment is None else values | {"augment": augment.to_dict()}

    def budget(self, samples: int) -> Budget:
        """Return the steps and epochs of a training set of `samples`."""
        return make_budget(samples, self.batch * self.accumulate, self.epochs, self.steps)

    def checked_every(self, samples: int) -> int:
        """Return how many epochs lie between two validations."""
        if self.check_every is not None:
            return self.check_every
        return 1 if self.patience else math.ceil(self.budget(samples).epochs / MOST_CHECKS)

    def suited_to(self, split: Split) -> Self:
        """Return the settings with the batches of a loader, where one fixes them."""
        size = split.samples.batch_size
        return self if size is None else replace(self, batch=size)

    def resolved(self, samples: int) -> Self:
        """Return the settings with a number of epochs, the default one for `samples` if none was given."""
        if self.epochs is not None or self.steps is not None:
            return self
        return replace(self, epochs=self.budget(samples).epochs)

    def following(self, recipe: Recipe, samples: int) -> Self:
        """Return the settings with the changes of a recipe, for a training set of `samples`."""
        changed = self.resolved(samples)
        if recipe.weight_decay is not None:
            changed = replace(changed, weight_decay=recipe.weight_decay)
        if recipe.schedule is not None:
            changed = replace(changed, schedule=recipe.schedule)
        if recipe.longer == 1:
            return changed
        if changed.steps is not None:
            return replace(changed, steps=math.ceil(changed.steps * recipe.longer))
        return replace(changed, epochs=math.ceil(changed.budget(samples).epochs * recipe.longer))

    def make_optimizer(self, groups: list[dict[str, Any]]) -> Optimizer:
        """Return the optimizer of these parameter groups."""
        options: dict[str, Any] = {}
        if self.optimizer == "sgd":
            options = {"momentum": self.momentum, "nesterov": self.nesterov}
        return OPTIMIZERS[self.optimizer](groups, lr=self.lr, **options)

    def rate(self, progress: float) -> float:
        """Return the learning rate when `progress`, in [0, 1], of training is done."""
        rising = 1.0
        if self.warmup:
            rising = min(1.0, progress / self.warmup)
        return self.lr * rising * SCHEDULES[self.schedule](progress, self.milestones, self.milestone_factor)


def _are_shares(values: object) -> bool:
    """Return whether these are floats in (0, 1) that ascend."""
    if not isinstance(values, tuple):
        return False
    before = 0.0
    for value in values:
        if type(value) is not float or not before < value < 1:
            return False
        before = value
    return True
