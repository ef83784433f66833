"""Inputs and targets in the forms that people have them, as tensors: NumPy arrays, DataFrames, lists."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pluribus.errors import InputError


def to_inputs(values: Any) -> Tensor:
    """Return inputs `[count, ...]`: tensors as they are, floats of NumPy and pandas in torch's default type.

    NumPy computes in float64 unless told otherwise, and networks in float32. Bytes stay bytes, because they
    are images.
    """
    if isinstance(values, Tensor):
        check_dense("x", values)
        return values
    array = to_array("x", values)
    if array.dtype.kind in "iu":
        return torch.from_numpy(array if array.dtype == np.uint8 else array.astype(np.int64))
    return torch.from_numpy(array.astype(np.float64)).to(torch.get_default_dtype())


def to_targets(values: Any) -> Tensor:
    """Return targets: class numbers int64 `[count]`, or floats `[count, targets]`; tensors as they are."""
    if isinstance(values, Tensor):
        check_dense("y", values)
        return values
    array = to_array("y", values)
    if array.dtype.kind in "iub":
        return torch.from_numpy(array.astype(np.int64))
    columns = array.astype(np.float64).reshape(len(array), -1) if array.ndim < 2 else array.astype(np.float64)
    return torch.from_numpy(columns).to(torch.get_default_dtype())


def check_dense(name: str, values: Tensor) -> None:
    """Raise for tensors that cannot be cut into samples: sparse and nested ones, and those of no numbers."""
    if values.layout is torch.strided and not values.is_nested and not values.is_meta:
        return
    kind = "nested" if values.is_nested else f"{values.layout} on {values.device}".removeprefix("torch.")
    raise InputError(
        f"{name} must be a dense tensor that holds numbers, got a {kind} one. Pass x.to_dense()."
    )


def check_unmasked(name: str, values: Any) -> None:
    """Raise for masked arrays with masked entries: what lies beneath a mask is no number of the user's."""
    if np.ma.is_masked(values):
        raise InputError(
            f"{name} must have no masked entries, got some. Fill them in with values.filled(...)."
        )


def to_array(name: str, values: Any) -> np.ndarray[Any, Any]:
    """Return a NumPy array of numbers; raise for text, objects, masked entries and anything without rows."""
    check_unmasked(name, values)
    array = np.asarray(values)
    if array.dtype.kind not in "biuf" or not array.ndim:
        hint = " Use pluribus.data.frame_task for tables with words." if hasattr(values, "columns") else ""
        raise InputError(
            f"{name} must hold numbers [count, ...], got {type(values).__name__} of {array.dtype}.{hint}"
        )
    return array
