"""Samples with an order of their own: iterable datasets, and loaders whose sampler the user chose.

Such a set cannot be shuffled by a seed, nor gone through in one order per member. Before each pass
`set_epoch` is called where the dataset or its sampler has it. Where nothing has it, the order may depend on
the passes before: a resumed training goes through these without using them.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, final

import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader, IterableDataset

from pluribus.data.batch import Batch, Names
from pluribus.data.indexed import Collate, Transform, explaining_samples, stack_samples
from pluribus.data.sample_set import SampleSet
from pluribus.errors import InputError
from pluribus.ranges import check


@final
class OwnOrder(SampleSet):
    """Read the batches of a loader in its own order.

    Args:
        loader: A loader with batches of its own size, or a function that makes one for a size.
        names: Of the entries of samples that are dicts.
        count: How many samples a pass has.
        own_order: Name of what decides the order.
        batch_size: Samples of a batch, where the loader fixes it.
    """

    def __init__(
        self,
        loader: "DataLoader[Any] | Loading",
        names: Names,
        count: int,
        own_order: str,
        batch_size: int | None,
    ) -> None:
        self.loader, self.names, self.count = loader, names, count
        self.own_order, self.batch_size = own_order, batch_size
        self.passed = 0

    def __len__(self) -> int:
        return self.count

    def read(
        self, size: int, generators: Sequence[Generator] = (), epoch: int = 0, share: slice = slice(None)
    ) -> Iterator[Batch]:
        """Yield the batches of one pass; several orders are refused."""
        if len(generators) > 1:
            raise InputError(
                f"each member must get the samples in an order of its own, got {self.own_order}, which has "
                "one order for all. Give a dataset that is read by numbers, or another method."
            )
        loader = self.loader(size) if isinstance(self.loader, Loading) else self.loader
        # Validation and test sets are gone through as they come.
        if generators:
            self._move_to(epoch, loader)
            self.passed = epoch + 1
        with explaining_samples():
            for raw in loader:
                yield self.names.unpack(raw).take(share) if share != slice(None) else self.names.unpack(raw)

    def first(self, count: int) -> Batch:
        """Return the first samples."""
        loader = self.loader(count) if isinstance(self.loader, Loading) else self.loader
        # Random numbers that reading draws must not change those of training.
        with torch.random.fork_rng(devices=[]), explaining_samples():
            batch = self.names.unpack(_first_batch(loader, count))
            return batch.take(slice(0, count))

    def take(self, index: Tensor) -> SampleSet:
        """Raise: samples without numbers cannot be chosen."""
        raise InputError(
            f"samples must have numbers to be chosen by, got {self.own_order}. "
            "Choose them in the dataset, or use Split(...).in_memory()."
        )

    def _move_to(self, epoch: int, loader: "DataLoader[Any]") -> None:
        """Bring the order to that of an epoch."""
        parts: tuple[Any, ...] = (loader.dataset, loader.sampler, loader.batch_sampler)
        steered = [part for part in parts if hasattr(part, "set_epoch")]
        for part in steered:
            part.set_epoch(epoch)
        if steered:
            return
        while self.passed < epoch:
            # The state of torch's own generator is part of a checkpoint, and must not move here.
            with torch.random.fork_rng(devices=[]):
                _pass_over(loader)
            self.passed += 1


@final
class Loading:
    """Make a loader of an iterable dataset for a size of batches.

    Args:
        dataset: Gives samples when it is iterated.
        transform: Applied to each sample, or None.
        collate: Makes a batch of a list of samples, or None.
        workers: Processes that read ahead.
        pin_memory: Copy batches into memory that a GPU reads faster.
    """

    def __init__(
        self,
        dataset: Any,
        transform: Transform | None,
        collate: Collate | None,
        workers: int,
        pin_memory: bool,
    ) -> None:
        self.dataset, self.transform, self.collate = dataset, transform, collate or stack_samples
        self.workers, self.pin_memory = workers, pin_memory

    def __call__(self, size: int) -> "DataLoader[Any]":
        return DataLoader(
            Transformed(self.dataset, self.transform),
            batch_size=size,
            collate_fn=self.collate,
            num_workers=self.workers,
            pin_memory=self.pin_memory and torch.cuda.is_available(),
            generator=Generator().manual_seed(0),
        )


@final
class Transformed(IterableDataset[Any]):
    """An iterable dataset with a transform of each sample."""

    def __init__(self, dataset: Any, transform: Transform | None) -> None:
        self.dataset, self.transform = dataset, transform
        if hasattr(dataset, "set_epoch"):
            self.set_epoch = dataset.set_epoch

    def __iter__(self) -> Iterator[Any]:
        for sample in self.dataset:
            yield sample if self.transform is None else self.transform(sample)


def iterable_set(
    dataset: Any,
    names: Names,
    length: int | None,
    transform: Transform | None,
    collate: Collate | None,
    workers: int,
    pin_memory: bool,
) -> OwnOrder:
    """Return the samples of an iterable dataset."""
    kind = type(dataset).__name__
    if iter(dataset) is dataset:
        raise InputError(
            f"a split must be gone through in every epoch, got {kind}, which gives its samples once. "
            "Give an IterableDataset, whose __iter__ starts anew."
        )
    loading = Loading(dataset, transform, collate, workers, pin_memory)
    return OwnOrder(loading, names, _length(dataset, length), kind, None)


def loader_set(loader: "DataLoader[Any]", names: Names, length: int | None) -> OwnOrder:
    """Return the samples of a loader that keeps its own order."""
    count = _count(loader, length)
    size = loader.batch_size
    if size is None:
        try:
            # Batches of a user's batch sampler differ in size; the mean makes the right number of steps.
            size = -(-count // max(len(loader), 1))
        except TypeError:
            size = None
    kept = loader.dataset if isinstance(loader.dataset, IterableDataset) else _sampler(loader)
    return OwnOrder(loader, names, count, type(kept).__name__, size)


def _sampler(loader: "DataLoader[Any]") -> Any:
    """Return the sampler that decides the order."""
    batches = loader.batch_sampler
    return getattr(batches, "sampler", batches) or loader.sampler


def _count(loader: "DataLoader[Any]", length: int | None) -> int:
    """Return how many samples a pass of a loader has."""
    if length is not None or isinstance(loader.dataset, IterableDataset):
        return _length(loader.dataset, length)
    try:
        return len(_sampler(loader)) if loader.batch_size else len(loader.dataset)  # type: ignore[arg-type]
    except TypeError:
        return _length(loader.dataset, length)


def _length(dataset: Any, length: int | None) -> int:
    if length is not None:
        check("length", length, int, at_least=1)
        return length
    try:
        return len(dataset)
    except (TypeError, NotImplementedError) as error:
        raise InputError(
            f"a split must know how many samples it has, got {type(dataset).__name__} without a length. "
            "Give Split(..., length=...): training is planned by it."
        ) from error


def _first_batch(loader: "DataLoader[Any]", count: int) -> Any:
    """Return a batch of the first samples, without a step of the loader's sampler."""
    dataset, collate = loader.dataset, loader.collate_fn
    if not isinstance(dataset, IterableDataset):
        return collate([dataset[place] for place in range(min(count, len(dataset)))])  # type: ignore[arg-type]
    if loader.batch_size is None:
        # The dataset gives whole batches.
        return collate(next(iter(dataset)))
    samples = list(islice(iter(dataset), count))
    if not samples:
        raise InputError("a dataset must have at least one sample, got none.")
    return collate(samples)


def _pass_over(loader: "DataLoader[Any]") -> None:
    """Go through one pass; of a dataset with numbers, through the numbers alone."""
    source = loader.dataset if isinstance(loader.dataset, IterableDataset) else loader.batch_sampler
    for _ in source if source is not None else loader.sampler:
        pass
