"""Tasks: data to train and to measure on, with the meaning of its numbers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Generator, Tensor

from pluribus.data.columns import Columns
from pluribus.data.limits import SHOWN
from pluribus.data.samples import collect, to_inputs, to_targets
from pluribus.data.scaling import UNSCALED, Scaling
from pluribus.errors import InputError
from pluribus.likelihood import IGNORED, MISSING, Bernoulli, Categorical, Gaussian, Likelihood, check_finite
from pluribus.prediction import Prediction
from pluribus.ranges import check, invalid


@dataclass(frozen=True, eq=False, init=False)
class Split:
    """Hold samples: inputs `x` and targets `y`, both `[count, ...]`.

    Targets are class numbers (int64, `[count]`) or numbers (floats, `[count, targets]`). A split is a
    dataset for `torch.utils.data.DataLoader`: `split[i]` is the pair of sample i.

    Args:
        x: Inputs: a tensor, a NumPy array, a DataFrame of numbers, or a dataset of PyTorch whose samples are
            pairs of input and target, which is read into memory.
        y: Targets: a tensor, a NumPy array, a list or a Series; None with a dataset.

    Example:
        >>> import numpy as np
        >>> Split(np.zeros((7, 3)), np.zeros(7, dtype=int))
        Split(7 × [3])
    """

    x: Tensor
    y: Tensor

    def __init__(self, x: Any, y: Any = None) -> None:
        if y is None:
            x, y = collect(x)
        object.__setattr__(self, "x", to_inputs(x))
        object.__setattr__(self, "y", to_targets(y))
        if len(self.x) != len(self.y):
            raise InputError(
                f"x and y must have a row per sample, got {len(self.x)} and {len(self.y)} rows. "
                "Give each input its target."
            )

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]

    def __repr__(self) -> str:
        return f"Split({len(self)} × {list(self.x.shape[1:])})"

    def take(self, index: Tensor) -> "Split":
        """Return some of the samples, by their numbers, `[count]`."""
        return Split(self.x[index], self.y[index])

    def batches(self, size: int, generator: Generator | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all samples, up to `size` at a time, in an order drawn from `generator` or as they lie."""
        check("size", size, int, at_least=1)
        count = len(self)
        order = torch.arange(count) if generator is None else torch.randperm(count, generator=generator)
        for start in range(0, count, size):
            index = order[start : start + size]
            yield self.x[index], self.y[index]


@dataclass(frozen=True, eq=False)
class Task:
    """Hold data for training and measuring, checked when it is made. Inputs are as the network takes them.

    Args:
        name: Of the task, in records.
        train: To learn from.
        validation: To choose by; may be empty.
        test: To measure on.
        likelihood: Meaning of the network's outputs.
        classes: How many classes; None where numbers or labels are predicted.
        class_names: Their names in order, or none.
        shifted: Test data that changed, by kind and severity (1 to 5); images are corrupted on access.
        ood: Inputs `[count, ...]` of another kind than those learnt from, by name.
        missing: Sets that `ood` lacks, by name, and what to do about it.
        scaling: Applied to raw inputs by `prepare`.
        target_scaling: Was applied to the targets.
        feature_names: Of the columns of an input in order, or none.
        columns: How cells of a table became inputs, where the task is a table.
        notes: Assumptions that were made when the data was read, in whole sentences.
    """

    name: str
    train: Split
    validation: Split
    test: Split
    likelihood: Likelihood = field(default_factory=Categorical)
    classes: int | None = None
    class_names: tuple[str, ...] = ()
    shifted: Mapping[tuple[str, int], Split] = field(default_factory=dict)
    ood: Mapping[str, Tensor] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    scaling: Scaling = UNSCALED
    target_scaling: Scaling = UNSCALED
    feature_names: tuple[str, ...] = ()
    columns: Columns | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.train) or not len(self.test):
            raise InputError(
                f"{self.name} must have training and test samples, "
                f"got {len(self.train)} and {len(self.test)}. Add samples to the empty part."
            )
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        for part, split in parts.items():
            check_inputs(f"{part} inputs", split.x, self.input_shape)
            check_targets(part, split.y, self.likelihood, self.classes)
        if self.feature_names and self.input_shape != (len(self.feature_names),):
            raise invalid(
                "feature_names",
                f"one for each number of an input {list(self.input_shape)}",
                self.feature_names,
            )
        if self.classes is not None:
            check_all_present(self.train.y, self.classes, self.class_names)

    def __repr__(self) -> str:
        parts = f"{len(self.train)} train, {len(self.validation)} validation, {len(self.test)} test"
        sets = f"{len(self.shifted)} shifted, out of distribution: {', '.join(self.ood) or 'none'}"
        kind = f"{self.classes} classes" if self.classes else type(self.likelihood).__name__
        return f"Task({self.name}: {parts}; inputs {list(self.input_shape)}; {kind}; {sets})"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Return the shape of one input."""
        return tuple(self.train.x.shape[1:])

    @property
    def outputs(self) -> int:
        """Return how many numbers a network gives for a sample.

        These are a logit per class or label, or a mean per target, and as many raw variances where the
        likelihood is `Gaussian()`.
        """
        if self.classes is not None:
            return self.classes
        targets = self.train.y[0].numel()
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


def check_inputs(name: str, x: Tensor, shape: tuple[int, ...]) -> None:
    """Raise for inputs of another shape than those of training, NaN and infinity."""
    if tuple(x.shape[1:]) != shape:
        raise InputError(
            f"{name} must have the shape {list(shape)} of the training inputs, "
            f"got {list(x.shape[1:])}. Resize them, or choose the same features."
        )
    if x.is_floating_point():
        check_finite(name, x, MISSING)


def check_targets(part: str, y: Tensor, likelihood: Likelihood, classes: int | None) -> None:
    """Raise for targets that do not fit the likelihood; only `Categorical` has classes."""
    if not isinstance(likelihood, Categorical):
        if classes is not None:
            raise invalid("classes", f"None for {type(likelihood).__name__}", classes)
        check_numbers(part, y, likelihood)
    elif type(classes) is not int or classes < 2:
        raise invalid("classes", "a whole number, at least 2, for Categorical", classes)
    else:
        check_classes(part, y, classes)


def check_classes(part: str, y: Tensor, classes: int) -> None:
    """Raise for labels other than 0 to `classes - 1`; dense targets may leave out positions."""
    if y.dtype != torch.int64:
        raise InputError(f"{part} labels must be int64, got {y.dtype}. Use y.long().")
    ignored = (y == IGNORED) & (y.ndim > 1)
    foreign = ((y < 0) | (y >= classes)) & ~ignored
    if foreign.any():
        first = foreign.nonzero()[0]
        raise InputError(
            f"{part} labels must lie in 0 to {classes - 1}, got {y[tuple(first)].item()} "
            f"at sample {first[0].item()}. Number the classes from 0, or raise the number of classes."
        )


def check_all_present(y: Tensor, classes: int, names: tuple[str, ...]) -> None:
    """Raise for a class without training samples, and for names that are not one per class."""
    if names and len(names) != classes:
        raise invalid("class_names", f"{classes} names or none", names)
    present = set(torch.unique(y[y >= 0]).tolist())
    if len(present) == classes:
        return
    # A loop over all classes would take as long as the greatest label is large, which may be 10^9.
    first = islice((i for i in range(classes) if i not in present), SHOWN)
    empty = ", ".join(names[i] if names else str(i) for i in first)
    more = classes - len(present) - SHOWN
    if more > 0:
        empty += f" and {more} more"
    raise InputError(
        f"each of {classes} classes must have training samples, got none for class {empty}. "
        "Add samples, or number the classes without gaps."
    )


def check_numbers(part: str, y: Tensor, likelihood: Likelihood) -> None:
    """Raise for targets that are no finite floats, or not in [0, 1] for `Bernoulli`."""
    if not y.is_floating_point():
        raise InputError(f"{part} targets must be floats, got {y.dtype}. Use y.float().")
    check_finite(f"{part} targets", y, MISSING)
    if isinstance(likelihood, Bernoulli) and len(y) and not 0 <= y.min() <= y.max() <= 1:
        raise InputError(
            f"{part} targets must lie in 0 to 1 for Bernoulli, "
            f"got numbers from {y.min():g} to {y.max():g}. Use Categorical for classes."
        )
