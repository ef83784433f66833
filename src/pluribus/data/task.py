"""Tasks: data to train and to measure on, with the meaning of its numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pluribus.data.batch import Batch
from pluribus.data.columns import Columns
from pluribus.data.digest import digest
from pluribus.data.input_checks import check_split
from pluribus.data.scaling import UNSCALED, Scaling
from pluribus.data.split import CHECKED, Split
from pluribus.data.target_checks import check_all_present, check_names, check_targets
from pluribus.errors import InputError
from pluribus.likelihood import IGNORED, Categorical, Gaussian, Likelihood
from pluribus.likelihood import likelihood as likelihood_named
from pluribus.prediction import Prediction
from pluribus.ranges import invalid


@dataclass(frozen=True, eq=False)
class Task:
    """Hold data for training and measuring, checked when it is made. Inputs are as the network takes them.

    Args:
        name: Of the task, in records.
        train: To learn from.
        validation: To choose by; may be empty.
        test: To measure on.
        likelihood: Meaning of the network's outputs, or its name, as `convert` takes it.
        classes: How many classes; None where numbers or labels are predicted.
        class_names: Their names in order, or none.
        shifted: Test data that changed, by kind and severity (1 to 5); images are corrupted on access.
        ood: Inputs of another kind than those learnt from, by name: tensors `[count, ...]`, tuples or dicts
            of them, or splits.
        missing: Sets that `ood` lacks, by name, and what to do about it.
        scaling: Applied to raw inputs by `prepare`.
        target_scaling: Was applied to the targets.
        feature_names: Of the columns of an input in order, or none.
        columns: How cells of a table became inputs, where the task is a table.
        notes: Assumptions that were made when the data was read, in whole sentences.
        class_weights: How much a sample, or a position of a dense target, of each class counts in training,
            at least 0; empty where all count alike.
    """

    name: str
    train: Split
    validation: Split
    test: Split
    likelihood: Likelihood = field(default_factory=Categorical)
    classes: int | None = None
    class_names: tuple[str, ...] = ()
    shifted: Mapping[tuple[str, int], Split] = field(default_factory=dict)
    ood: Mapping[str, Any] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    scaling: Scaling = UNSCALED
    target_scaling: Scaling = UNSCALED
    feature_names: tuple[str, ...] = ()
    columns: Columns | None = None
    notes: tuple[str, ...] = ()
    class_weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "likelihood", likelihood_named(self.likelihood))
        if not len(self.train) or not len(self.test):
            raise InputError(
                f"{self.name} must have training and test samples, "
                f"got {len(self.train)} and {len(self.test)}. Add samples to the empty part."
            )
        for part, split in self.parts.items():
            check_split(part, split, self.train)
            if split.streams:
                # The first samples stand for all: errors in others are raised when they are read.
                check_targets(part, split.example(CHECKED).target, self.likelihood, self.classes)
            else:
                check_targets(part, split.y, self.likelihood, self.classes)
        if self.feature_names and self.input_shape != (len(self.feature_names),):
            raise invalid(
                "feature_names",
                f"one for each number of an input {list(self.input_shape)}",
                self.feature_names,
            )
        if self.classes is not None:
            check_names(self.classes, self.class_names, self.class_weights)
            if not self.train.streams:
                check_all_present(self.train.y, self.classes, self.class_names)
        elif self.class_weights:
            raise invalid("class_weights", f"none for {type(self.likelihood).__name__}", self.class_weights)

    def __repr__(self) -> str:
        parts = f"{len(self.train)} train, {len(self.validation)} validation, {len(self.test)} test"
        sets = f"{len(self.shifted)} shifted, out of distribution: {', '.join(self.ood) or 'none'}"
        kind = f"{self.classes} classes" if self.classes else type(self.likelihood).__name__
        return f"Task({self.name}: {parts}; inputs {list(self.input_shape)}; {kind}; {sets})"

    @property
    def parts(self) -> dict[str, Split]:
        """Return the three parts by name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Return the shape of one input; of the first, where a sample has several."""
        return next(iter(self.train.shapes.values()))

    @property
    def codes(self) -> dict[int, int]:
        """Return the number of categories of each input that is a code of a table, by its place."""
        return {} if self.columns is None else self.columns.codes

    @cached_property
    def fingerprint(self) -> str:
        """Return a short text that equal data and settings have, and no others; `digest` tells how."""
        scalings = [self.scaling.mean, self.scaling.std, self.target_scaling.mean, self.target_scaling.std]
        settings = [self.name, self.likelihood.to_dict(), self.classes, self.class_names, self.class_weights]
        return digest([settings, self.feature_names, scalings, self.parts, self.shifted, self.ood])

    @property
    def outputs(self) -> int:
        """Return how many numbers a network gives for a sample.

        These are a logit per class or label, or a mean per target, and as many raw variances where the
        likelihood is `Gaussian()`.
        """
        if self.classes is not None:
            return self.classes
        targets = self.train.example(1).target[0].numel()
        # A Gaussian with a given precision needs means alone.
        return 2 * targets if self.likelihood == Gaussian() else targets

    @property
    def target_mean(self) -> Tensor:
        """Return what was subtracted from the targets, in the units of the data."""
        return self.target_scaling.mean

    @property
    def target_std(self) -> Tensor:
        """Return what the targets were divided by, in the units of the data."""
        return self.target_scaling.std

    def training_weights(self, batch: Batch) -> Tensor | None:
        """Return the weights of a batch: of its samples, and of the classes of their targets; or None.

        They are `[batch]`, or have the shape of a dense target.
        """
        if not self.class_weights:
            return batch.weights
        y = batch.target
        by_class = torch.tensor(self.class_weights, device=y.device)
        if y.is_floating_point():
            weights = (y.movedim(1, -1) * by_class).sum(-1)
        else:
            weights = by_class[y.clamp(min=0)] * (y != IGNORED)
        if batch.weights is None:
            return weights
        return weights * batch.weights.reshape(-1, *[1] * (weights.ndim - 1))

    def prepare(self, raw: Tensor) -> Tensor:
        """Return inputs as they lie in the files, `[count, ...]`, in the form the network takes."""
        return self.scaling.apply(raw)

    def in_units(self, prediction: Prediction) -> Prediction:
        """Return means and variances in the units of the data; classes as they are."""
        return in_units(prediction, self.target_scaling)

    def table(self, prediction: Prediction) -> dict[str, list[Any]]:
        """Return the columns of a prediction in the units of the data.

        Classes that have names are called by them: `labels` holds names, and `p0`, `p1` become `p_<name>`.
        """
        return named_columns(self.in_units(prediction), self.class_names, self.classes)


def in_units(prediction: Prediction, scaling: Scaling) -> Prediction:
    """Return means and variances of scaled targets in the units of the data; classes as they are."""
    return prediction.rescaled(scaling.mean, scaling.std)


def named_columns(
    prediction: Prediction, class_names: tuple[str, ...], classes: int | None
) -> dict[str, list[Any]]:
    """Return the columns of a prediction; where each class has a name, `p0` becomes `p_<name>`."""
    columns = prediction.table()
    # Equal names would make equal columns, of which one would be lost.
    if len(set(class_names)) != classes:
        return columns
    columns["labels"] = [class_names[label] for label in columns["labels"]]
    if "set" in columns:
        columns["set"] = [_named_set(numbers, class_names) for numbers in columns["set"]]
    called = {f"p{i}": f"p_{name}" for i, name in enumerate(class_names)}
    return {called.get(name, name): values for name, values in columns.items()}


def _named_set(numbers: str, class_names: tuple[str, ...]) -> str:
    """Return a set of classes by their names; a bar parts them, since names may hold blanks."""
    return " | ".join(class_names[int(number)] for number in numbers.split())


def check_task(task: object) -> None:
    """Raise for anything but a task, and name how one is made."""
    if not isinstance(task, Task):
        raise InputError(
            f"task must be a Task, got {type(task).__name__}. Make one of your data: "
            "Task('mine', Split(x, y), validation, test, classes=3)."
        )
