"""Samples in the forms that people have them, as tensors: NumPy arrays, DataFrames, datasets of PyTorch."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from pluribus.data.limits import MOST_BYTES, check_bytes
from pluribus.errors import InputError


def to_inputs(values: Any) -> Tensor:
    """Return inputs `[count, ...]`: tensors as they are, floats of NumPy and pandas in torch's default type.

    NumPy computes in float64 unless told otherwise, and networks in float32. Bytes stay bytes, because they
    are images.
    """
    if isinstance(values, Tensor):
        return values
    array = to_array("x", values)
    if array.dtype.kind in "iu":
        return torch.from_numpy(array if array.dtype == np.uint8 else array.astype(np.int64))
    return torch.from_numpy(array.astype(np.float64)).to(torch.get_default_dtype())


def to_targets(values: Any) -> Tensor:
    """Return targets: class numbers int64 `[count]`, or floats `[count, targets]`; tensors as they are."""
    if isinstance(values, Tensor):
        return values
    array = to_array("y", values)
    if array.dtype.kind in "iub":
        return torch.from_numpy(array.astype(np.int64))
    columns = array.astype(np.float64).reshape(len(array), -1) if array.ndim < 2 else array.astype(np.float64)
    return torch.from_numpy(columns).to(torch.get_default_dtype())


def to_array(name: str, values: Any) -> np.ndarray[Any, Any]:
    """Return a NumPy array of numbers; raise for text, objects and anything without rows."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf" or not array.ndim:
        hint = " Use pluribus.data.frame_task for tables with words." if hasattr(values, "columns") else ""
        raise InputError(
            f"{name} must hold numbers [count, ...], got {type(values).__name__} of {array.dtype}.{hint}"
        )
    return array


def collect(dataset: Any, most_bytes: int = MOST_BYTES) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of a dataset, read once into memory.

    Args:
        dataset: Of PyTorch, by index or iterable; its samples are pairs of input and target.
        most_bytes: Memory that inputs and targets may take.
    """
    if not isinstance(dataset, Dataset):
        raise InputError(
            "a split must be made of inputs and targets, or of a Dataset, "
            f"got {type(dataset).__name__} alone."
        )
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        return dataset.tensors[0], dataset.tensors[1]
    inputs: list[Tensor] = []
    targets: list[Tensor] = []
    size = 0
    for sample in _samples(dataset):
        x, y = _pair(sample)
        size += x.numel() * x.element_size() + y.numel() * y.element_size()
        check_bytes("the samples of a dataset", size, most_bytes)
        inputs.append(x)
        targets.append(y)
    if not inputs:
        raise InputError("a dataset must have at least one sample, got none.")
    return _stacked("inputs", inputs), _stacked("targets", targets)


def _samples(dataset: Any) -> Iterable[Any]:
    """Return the samples of a dataset in order."""
    if isinstance(dataset, IterableDataset):
        return dataset
    return (dataset[place] for place in range(len(dataset)))


def _pair(sample: Any) -> tuple[Tensor, Tensor]:
    """Return input and target of a sample as tensors of torch's usual types."""
    if not isinstance(sample, tuple | list) or len(sample) != 2:
        raise InputError(
            f"samples must be pairs of an input and a target, got {type(sample).__name__}. Wrap the dataset."
        )
    # An axis for the sample is added and taken away again, so that one number is an array.
    x = sample[0] if isinstance(sample[0], Tensor) else to_inputs(np.asarray(sample[0])[None])[0]
    y = sample[1] if isinstance(sample[1], Tensor) else to_targets(np.asarray(sample[1])[None])[0]
    return x, y


def _stacked(name: str, parts: list[Tensor]) -> Tensor:
    """Return tensors of one shape and type as one."""
    kinds = {(tuple(part.shape), part.dtype) for part in parts}
    if len(kinds) != 1:
        shown = " and ".join(f"{list(shape)} of {dtype}" for shape, dtype in sorted(kinds, key=str)[:2])
        raise InputError(
            f"{name} of a dataset must have one shape and type, got {shown}. Resize or pad them."
        )
    return torch.stack(parts)
