"""Check the targets of a task: they fit the likelihood, and every class is there to learn from."""

from itertools import islice

import torch
from torch import Tensor

from pluribus.data.limits import SHOWN
from pluribus.errors import InputError
from pluribus.likelihood import (
    IGNORED,
    MISSING,
    ROUNDING,
    Bernoulli,
    Categorical,
    Likelihood,
    check_finite,
    fill_missing,
)
from pluribus.ranges import invalid


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
    if y.is_floating_point() and y.ndim > 1:
        check_probabilities(part, y, classes)
        return
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


def check_probabilities(part: str, y: Tensor, classes: int) -> None:
    """Raise for probabilities, `[count, classes, ...]`, that are negative or do not sum to one."""
    if y.shape[1] != classes:
        raise InputError(
            f"{part} probabilities must have {classes} classes on axis 1, got shape {list(y.shape)}. "
            "Use y.long() for class numbers."
        )
    sums = y.sum(1)
    if len(y) and (not (y >= 0).all() or not ((sums - 1).abs() <= ROUNDING).all()):
        raise InputError(
            f"{part} probabilities must be at least 0 and sum to one over the classes, got sums from "
            f"{sums.min():g} to {sums.max():g}. Use softmax on logits."
        )


def check_names(classes: int, names: tuple[str, ...], weights: tuple[float, ...]) -> None:
    """Raise for names and weights that are not one per class."""
    if names and len(names) != classes:
        raise invalid("class_names", f"{classes} names or none", names)
    if weights and (len(weights) != classes or not all(0 <= one < torch.inf for one in weights)):
        raise invalid("class_weights", f"{classes} numbers of at least 0, or none", weights)


def check_all_present(y: Tensor, classes: int, names: tuple[str, ...]) -> None:
    """Raise for a class without training samples."""
    # The mass of probabilities counts as samples do.
    y = y.movedim(1, -1).reshape(-1, classes).sum(0).nonzero() if y.is_floating_point() else y
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
    # Where a sample has several targets, missing ones are NaN.
    y = fill_missing(y)[0]
    check_finite(f"{part} targets", y, MISSING)
    if isinstance(likelihood, Bernoulli) and len(y) and not 0 <= y.min() <= y.max() <= 1:
        raise InputError(
            f"{part} targets must lie in 0 to 1 for Bernoulli, "
            f"got numbers from {y.min():g} to {y.max():g}. Use Categorical for classes."
        )
