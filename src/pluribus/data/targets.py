"""Targets as a likelihood wants them, of numbers or words as they lie in a file."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.likelihood import MISSING, Categorical, Likelihood, check_finite

Array = np.ndarray[Any, Any]
MOST_CLASSES = 10
"""How many distinct whole numbers still look like classes."""
MOST_CLASS = 2**31 - 1
"""The greatest class number; it keeps every later count and conversion exact."""


def targets(name: str, values: Array, likelihood: Likelihood) -> Tensor:
    """Return class numbers `[count]` for `Categorical`, else numbers `[count, targets]` in float64.

    Values are `[count]` or `[count, targets]`, where classes have one target.
    """
    if values.dtype.kind not in "biuf":
        raise InputError(
            f"{name} must hold numbers, got {values.dtype}. Number the classes from 0, without gaps."
        )
    if values.ndim not in (1, 2):
        raise InputError(f"{name} must be [count] or [count, targets], got shape {list(values.shape)}.")
    if values.dtype.kind == "f":
        check_finite(name, torch.from_numpy(values), MISSING)
    if not isinstance(likelihood, Categorical):
        return torch.from_numpy(values.astype(np.float64)).reshape(len(values), -1)
    if values.size != len(values):
        raise InputError(
            f"{name} must hold one class per sample, got shape {list(values.shape)}. "
            "Use Bernoulli for several labels, or argmax on one-hot rows."
        )
    values = values.reshape(-1)
    check_class_range(name, values)
    whole = values.astype(np.int64)
    broken = np.flatnonzero(whole != values)
    if len(broken):
        raise InputError(
            f"{name} must hold whole class numbers, got {values[broken[0]]:g} at sample {broken[0]}. "
            "Use the likelihood gaussian for numbers to predict."
        )
    return torch.from_numpy(whole)


def check_class_range(name: str, values: Array) -> None:
    """Raise for numbers that no count of classes reaches, before a conversion to int64 changes them."""
    odd = np.flatnonzero((values < -MOST_CLASS) | (values > MOST_CLASS))
    if len(odd):
        raise InputError(
            f"{name} must hold class numbers from 0 to {MOST_CLASS}, got {values[odd[0]]:g} at sample "
            f"{odd[0]}. Number the classes from 0, without gaps."
        )


def classes_in(values: Tensor) -> int:
    """Return how many classes the numbers to predict may stand for, `[count, 1]`.

    These are K where the numbers are the whole numbers 0 to K − 1, up to ten of them; else 0.
    """
    if values.shape[1:] != (1,):
        return 0
    # Scaled targets that were brought back are whole numbers but for rounding.
    rounded = values.round()
    if not torch.allclose(values, rounded, rtol=0, atol=1e-4):
        return 0
    found = sorted(set(rounded.flatten().tolist()))
    if not 2 <= len(found) <= MOST_CLASSES:
        return 0
    return len(found) if found == list(range(len(found))) else 0


def number_words(words: Sequence[str]) -> tuple[tuple[str, ...], Tensor]:
    """Return the distinct words in order, numbers by their size, and the place of each word, `[count]`."""

    def size(word: str) -> tuple[float, str]:
        # "10" comes after "9", and words that are no numbers come last.
        try:
            number = float(word)
        except ValueError:
            number = math.nan
        return (math.inf if math.isnan(number) else number), word

    names = tuple(sorted(set(words), key=size))
    places = {name: i for i, name in enumerate(names)}
    return names, torch.tensor([places[word] for word in words])
