"""How long each method of a comparison is trained, and what is held equal by it.

    recipe         nothing: each method trains as long as its `recipe()` demands
    steps          the steps of the optimizer
    compute        the multiply-adds of training, those of the most expensive method at the usual steps
    convergence    the end: each trains until its validation score no longer improves

A recipe's other changes, such as no weight decay, hold in every case.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import nn

from pluribus.conversion import convert
from pluribus.data.task import Task
from pluribus.errors import PluribusError, SettingError
from pluribus.mechanisms.network.dry_run import seeded
from pluribus.method import Method
from pluribus.ranges import check
from pluribus.recipe import Recipe
from pluribus.training.settings import Training
from pluribus.training.work import train_multiply_adds

Build = Callable[[], nn.Module]

TRAIN_FOR = ("recipe", "steps", "compute", "convergence")

LONGEST = 20
"""Multiple of the usual steps after which a training ends that still improves."""
WAIT = 0.5
"""Part of the usual training without a better score after which a training has converged."""
CHECKS = 20
"""Validations in the time of a usual training."""
MEAN = 0.99
"""Decay of the mean of the weights. A training of unknown length cannot lower its rate towards the end; the
mean of the last hundred steps takes the place of that."""


def trainings(
    build: Build, task: Task, methods: Sequence[Method], usual: Training, train_for: str, recipes: bool = True
) -> list[Training]:
    """Return the training of each method.

    Args:
        build: Makes the network.
        task: The data.
        methods: All methods of the comparison.
        usual: Of a method without a recipe, with its number of epochs or steps.
        train_for: What is held equal, one of `TRAIN_FOR`.
        recipes: Whether recipes change anything at all.

    Raises:
        SettingError: `train_for` is unknown, or there is no validation data to converge by.
    """
    check("train_for", train_for, str, choices=TRAIN_FOR)
    samples = len(task.train)
    wanted = [method.recipe() if recipes else Recipe() for method in methods]
    if train_for == "recipe":
        return [usual.following(recipe, samples) for recipe in wanted]
    # The length is decided here, and not by the recipe.
    alike = [usual.following(replace(recipe, longer=1.0), samples) for recipe in wanted]
    if train_for == "convergence":
        _check_validation(task)
        return [until_convergence(one, samples) for one in alike]
    if train_for == "compute":
        return _of_equal_work(build, task, methods, alike)
    return alike


def until_convergence(usual: Training, samples: int) -> Training:
    """Return a training that ends when its validation score no longer improves.

    Args:
        usual: The usual training; its patience and its mean of weights stay, if it has them.
        samples: Size of the training set.
    """
    budget = usual.budget(samples)
    return replace(
        usual,
        epochs=None,
        steps=LONGEST * budget.steps,
        schedule="constant",
        patience=usual.patience or max(1, math.ceil(WAIT * budget.epochs)),
        check_every=usual.check_every or max(1, budget.epochs // CHECKS),
        ema=usual.ema or MEAN,
    )


def _of_equal_work(
    build: Build, task: Task, methods: Sequence[Method], alike: Sequence[Training]
) -> list[Training]:
    """Return trainings whose multiply-adds are those of the most expensive method."""
    work = [_work(build, task, method, one) for method, one in zip(methods, alike, strict=True)]
    most = max(work)
    found = []
    for one, own in zip(alike, work, strict=True):
        steps = one.budget(len(task.train)).steps
        longer = most / own if own else 1.0
        found.append(replace(one, epochs=None, steps=math.ceil(steps * longer)))
    return found


def _work(build: Build, task: Task, method: Method, training: Training) -> float:
    """Return the multiply-adds of a training; 0 for a network that the method cannot convert."""
    with seeded(0):
        network = build()
    try:
        ensemble = convert(network, method, task.likelihood, example=task.train.example_for(network))
        return train_multiply_adds(ensemble, task, training, training.budget(len(task.train)).steps)
    # Its run fails with the same error, which its record keeps.
    except PluribusError:
        return 0.0


def _check_validation(task: Task) -> None:
    if not len(task.validation):
        raise SettingError(
            "train_for='convergence' needs validation data, got a task without any. Use 'steps' or 'compute'."
        )
