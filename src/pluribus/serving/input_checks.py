"""Checks of the numbers of a request: shape, type and values must be those that the network takes."""

from typing import Any

import numpy as np

from pluribus.serving.refusal import Refusal, bad
from pluribus.serving.tensors import Array, Input

NUMBERS = frozenset({int, float, bool})
LIST = frozenset({list})


def to_array(name: str, values: object) -> Array:
    """Return nested lists of numbers as an array; raise `Refusal` for ragged lists and texts."""
    # NumPy would give each number the room of the longest text: a megabyte of JSON would take gigabytes.
    _check_numbers(name, values)
    try:
        array = np.array(values)
    except (ValueError, OverflowError, TypeError) as error:
        raise bad(f"{name} must be nested lists of equal lengths, got ragged ones.") from error
    if array.dtype.kind not in "biuf":
        raise no_numbers(name)
    return array


def no_numbers(name: str) -> Refusal:
    """Return the refusal of values that are no numbers."""
    return bad(f"{name} must hold numbers alone, got a text, null, an object or a huge number.")


def _check_numbers(name: str, values: object) -> None:
    """Raise `Refusal` for anything but numbers and nested lists of them."""
    waiting = [values]
    while waiting:
        one = waiting.pop()
        kinds = set(map(type, one)) if isinstance(one, list) else {type(one)}
        if isinstance(one, list) and kinds <= LIST:
            waiting += one
        elif not kinds <= NUMBERS | LIST:
            raise no_numbers(name)
        elif kinds & LIST:
            raise bad(f"{name} must be nested lists of equal lengths, got ragged ones.")


def fitted(one: Input, values: Array) -> Array:
    """Return numbers in the type of an input, contiguous; raise `Refusal` unless shape and values fit."""
    check_shape(one, values)
    if not np.isfinite(values).all():
        raise bad(f"{one.name} must be finite, got NaN or infinity.")
    dtype = np.dtype(one.dtype)
    if dtype.kind in "iub" and values.size:
        _check_whole(one, values, dtype)
    # Numbers that overflow are found below.
    with np.errstate(over="ignore"):
        found = np.ascontiguousarray(values, dtype)
    if not np.isfinite(found).all():
        raise bad(f"{one.name} must hold numbers that {one.dtype} can hold, got larger ones.")
    return found


def _check_whole(one: Input, values: Array, dtype: np.dtype[Any]) -> None:
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    whole = values.dtype.kind in "iub" or bool((values == np.floor(values)).all())
    if not whole or values.min() < low or values.max() > high:
        raise bad(f"{one.name} must hold whole numbers from {low} to {high}, got others.")


def check_shape(one: Input, values: Array) -> None:
    """Raise `Refusal` unless values have the shape `[count, *shape]`."""
    came = values.shape[1:]
    fits = values.ndim == len(one.shape) + 1
    for size, expected in zip(came, one.shape, strict=False):
        fits = fits and (size == expected or (isinstance(expected, str) and size > 0))
    if not fits:
        expected_shape = ["batch", *one.shape]
        raise bad(f"{one.name} must have the shape {expected_shape}, got {list(values.shape)}.")


def as_bytes(values: Array) -> Array:
    """Return numbers as bytes; raise `Refusal` for numbers that a cast would change, and for NaN."""
    if not values.size:
        raise bad("bytes must be at least one number, got none.")
    if not (values == np.floor(values)).all() or values.min() < 0 or values.max() > 255:
        raise bad(f"bytes must be whole numbers from 0 to 255, got {values.min():g} to {values.max():g}.")
    return values.astype(np.uint8)
