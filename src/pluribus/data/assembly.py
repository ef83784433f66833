"""From raw samples to a task: divide, scale by the training part, corrupt, collect."""

from collections.abc import Mapping

import torch
from torch import Tensor

from pluribus.data.corruptions import LEAST_SIDE
from pluribus.data.input_checks import check_inputs
from pluribus.data.scaling import UNSCALED, Rescaled, Scaling
from pluribus.data.shifted import Shifted
from pluribus.data.split import Split
from pluribus.data.splits import Sizes, divide
from pluribus.data.target_checks import check_targets
from pluribus.data.task import Task
from pluribus.likelihood import Bernoulli, Categorical, Likelihood


def assemble(
    name: str,
    parts: tuple[Split, Split | None, Split | None],
    sizes: Sizes,
    *,
    likelihood: Likelihood,
    classes: int | None = None,
    class_names: tuple[str, ...] = (),
    target_scaling: Scaling | None = None,
    ood: Mapping[str, Tensor] | None = None,
    missing: Mapping[str, str] | None = None,
) -> Task:
    """A task of raw samples.

    Inputs `[count, channels, height, width]` are images, scaled by channel; others are scaled by feature.

    Args:
        name: What records call it.
        parts: Raw training, validation and test samples; what is None is held out of the training samples.
        sizes: How much of each part to keep.
        likelihood: What the network's outputs mean.
        classes: How many classes there are.
        class_names: Their names.
        target_scaling: How to scale numbers to predict; by default to mean 0 and variance 1 in training.
        ood: Raw inputs of another kind, by name.
        missing: Sets that `ood` lacks, and what to do about it.
    """
    ood = ood or {}
    _check(parts, ood, likelihood, classes)
    train, validation, test = divide(parts, sizes)
    scaling = (Scaling.of_channels if train.x.ndim == 4 else Scaling.of_columns)(train.x)
    if isinstance(likelihood, Categorical | Bernoulli):
        target_scaling = UNSCALED
    elif target_scaling is None:
        target_scaling = Scaling.of_columns(train.y)

    def ready(split: Split) -> Split:
        y = split.y if isinstance(likelihood, Categorical) else target_scaling.apply(split.y)
        return Split(scaling.apply(split.x), y)

    return Task(
        name=name,
        train=ready(train),
        validation=ready(validation),
        test=(tested := ready(test)),
        likelihood=likelihood,
        classes=classes,
        class_names=class_names,
        shifted=Shifted(test.x, tested.y, scaling) if corruptible(train.x) else {},
        ood=Rescaled(ood, scaling),
        missing=missing or {},
        scaling=scaling,
        target_scaling=target_scaling,
    )


def _check(
    parts: tuple[Split, Split | None, Split | None],
    ood: Mapping[str, Tensor],
    likelihood: Likelihood,
    classes: int | None,
) -> None:
    shape = tuple(parts[0].x.shape[1:])
    for part, split in zip(("train", "validation", "test"), parts, strict=True):
        if split is not None:
            check_inputs(f"{part} inputs", split.x, shape)
            check_targets(part, split.y, likelihood, classes)
    for other, x in ood.items():
        check_inputs(f"{other} inputs", x, shape)


def corruptible(x: Tensor) -> bool:
    """Return whether inputs are grey or RGB images in [0, 1] that are large enough."""
    shaped = x.ndim == 4 and x.shape[1] in (1, 3) and min(x.shape[2:]) >= LEAST_SIDE
    return shaped and (x.dtype == torch.uint8 or bool(0 <= x.min() <= x.max() <= 1))
