"""Samples of a user's `DataLoader`: in a seeded order where the user chose none, else in its own."""

from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.sampler import BatchSampler

from pluribus.data.batch import Names
from pluribus.data.indexed import Indexed
from pluribus.data.own_order import loader_set
from pluribus.data.sample_set import SampleSet
from pluribus.errors import InputError


def loader_samples(
    loader: "DataLoader[Any]",
    names: Names,
    weights: Tensor | None,
    length: int | None,
    options: dict[str, Any],
) -> SampleSet:
    """Return the samples of a loader: in a seeded order where the user chose none, else in its own."""
    if any(options.values()):
        raise InputError(
            "transform, collate, workers and pin_memory are those of the loader, got others beside it. "
            "Set them there, or give its dataset."
        )
    if not _is_plain(loader):
        if weights is not None:
            raise InputError("weights need samples with numbers, got a loader with an order of its own.")
        return loader_set(loader, names, length)
    return Indexed(
        with_tensors(loader.dataset),
        names,
        collate=loader.collate_fn,
        workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        weights=weights,
        batch_size=loader.batch_size,
        drop_last=loader.drop_last,
        worker_init=loader.worker_init_fn,
    )


def _is_plain(loader: "DataLoader[Any]") -> bool:
    """Return whether a loader has the samplers that torch makes for `shuffle=True` and `shuffle=False`."""
    if isinstance(loader.dataset, IterableDataset) or type(loader.batch_sampler) is not BatchSampler:
        return False
    if type(loader.sampler) is SequentialSampler:
        return True
    if type(loader.sampler) is not RandomSampler:
        return False
    whole = loader.sampler.num_samples == len(loader.dataset)  # type: ignore[arg-type]
    return whole and not loader.sampler.replacement


def with_tensors(dataset: Any) -> Any:
    """Return a dataset of Hugging Face that gives tensors; others as they are."""
    # The package is not imported: whoever has such a dataset has it.
    foreign = type(dataset).__module__.partition(".")[0] == "datasets"
    if not foreign or not hasattr(dataset, "with_format"):
        return dataset
    kind = getattr(dataset, "format", {}) or {}
    return dataset if kind.get("type") else dataset.with_format("torch")
