"""Samples in every form in which a user gives them, as a set of samples."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from pluribus.data.batch import Names
from pluribus.data.in_memory import InMemory
from pluribus.data.indexed import Indexed
from pluribus.data.loader_samples import loader_samples, with_tensors
from pluribus.data.own_order import iterable_set
from pluribus.data.sample_set import SampleSet
from pluribus.data.samples import to_inputs, to_targets
from pluribus.errors import InputError


def to_weights(weights: Any) -> Tensor:
    """Return weights of samples, `[count]`; raise unless they are finite and at least 0."""
    values = weights if isinstance(weights, Tensor) else torch.as_tensor(weights)
    values = values.to(torch.get_default_dtype())
    if values.ndim != 1 or not ((values >= 0) & values.isfinite()).all():
        raise InputError(
            "weights must be finite numbers of at least 0, one for each sample, "
            f"got shape {list(values.shape)}."
        )
    return values


def to_tensors_in_memory(x: Any) -> Any:
    """Return inputs in memory as tensors."""
    if isinstance(x, Mapping):
        return {name: to_inputs(value) for name, value in x.items()}
    return tuple(to_inputs(value) for value in x) if isinstance(x, tuple) else to_inputs(x)


def held_samples(x: Any, y: Any, names: Names, weights: Tensor | None) -> InMemory | None:
    """Return samples that are tensors or arrays; None where they are to be streamed."""
    if y is not None:
        return InMemory(to_tensors_in_memory(x), to_targets(y), weights)
    if isinstance(x, TensorDataset) and len(x.tensors) == 2:
        return InMemory(x.tensors[0], x.tensors[1], weights)
    if not isinstance(x, Mapping):
        return None
    # Tokenizers return inputs and labels of all samples as one dict.
    batch = names.unpack({name: to_inputs(value) for name, value in x.items()})
    return InMemory(batch.x, batch.target, batch.weights if weights is None else weights)


def streamed_samples(
    x: Any, names: Names, weights: Tensor | None, length: int | None, options: dict[str, Any]
) -> SampleSet:
    """Return samples that are read when they are needed."""
    if isinstance(x, DataLoader):
        return loader_samples(x, names, weights, length, options)
    if hasattr(x, "dtype") or hasattr(x, "iloc"):
        raise InputError(
            f"a split must be made of inputs and targets, or of a Dataset, got {type(x).__name__} alone."
        )
    dataset = with_tensors(x)
    numbered = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    if numbered and not isinstance(dataset, IterableDataset):
        return Indexed(dataset, names, weights=weights, **options)
    if not hasattr(dataset, "__iter__"):
        raise InputError(
            "a split must be made of inputs and targets, or of a Dataset, DataLoader or list, "
            f"got {type(x).__name__} alone."
        )
    if weights is not None:
        raise InputError(
            "weights need samples with numbers, got an iterable dataset. "
            f"Put them into the samples: dicts with an entry {names.weights!r}."
        )
    return iterable_set(dataset, names, length, **options)
