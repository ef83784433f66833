"""Samples of a dataset that are read by their numbers, a batch at a time.

The order of samples follows from seed and epoch alone, as for tensors in memory. So do random numbers that
the dataset or its transforms draw from torch, NumPy or Python: each sample has its own, so that neither the
number of workers nor a resumed training changes them. Datasets that read a whole batch in one call
(`__getitems__`) draw for the batch. A generator of the dataset's own is out of reach.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, final

import numpy as np
import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from pluribus.data.batch import Batch, Names
from pluribus.data.order import index_batches
from pluribus.data.sample_set import SampleSet
from pluribus.data.samples import to_inputs
from pluribus.errors import InputError, PluribusError
from pluribus.mechanisms.network.dry_run import derived_seed

Transform = Callable[[Any], Any]
Collate = Callable[[list[Any]], Any]
MOST_SEED = 2**32
"""NumPy takes seeds below this."""


@final
class Indexed(SampleSet):
    """Read samples of a dataset by their numbers.

    Args:
        dataset: Anything with a length and samples by number.
        names: Of the entries of samples that are dicts.
        transform: Applied to each sample; None changes nothing.
        collate: Makes a batch of a list of samples; None stacks their tensors.
        workers: Processes that read ahead; 0 reads in this one.
        pin_memory: Copy batches into memory that a GPU reads faster.
        weights: Of all samples, `[count]`, or None.
        places: Numbers of the samples that belong to the set; None is all.
        batch_size: Samples of a batch, where a loader fixes it.
        drop_last: In training, leave out a last batch that is smaller than the others.
        worker_init: Called in each worker with its number when it starts.
    """

    def __init__(
        self,
        dataset: Any,
        names: Names,
        *,
        transform: Transform | None = None,
        collate: Collate | None = None,
        workers: int = 0,
        pin_memory: bool = False,
        weights: Tensor | None = None,
        places: Tensor | None = None,
        batch_size: int | None = None,
        drop_last: bool = False,
        worker_init: Callable[[int], None] | None = None,
    ) -> None:
        self.dataset, self.names, self.transform = dataset, names, transform
        self.collate, self.workers, self.pin_memory = collate or stack_samples, workers, pin_memory
        self.weights, self.places = weights, places
        self.batch_size, self.drop_last, self.worker_init = batch_size, drop_last, worker_init
        if weights is not None and weights.shape != (len(self),):
            raise InputError(
                f"weights must be one number for each of {len(self)} samples, got {list(weights.shape)}."
            )

    def __len__(self) -> int:
        return len(self.dataset) if self.places is None else len(self.places)

    def __getitem__(self, index: int) -> Any:
        """Return a sample as the dataset and the transform give it."""
        return self._reader(0).__getitems__([self.numbers(torch.tensor([index]))[0]])[0]

    def read(
        self, size: int, generators: Sequence[Generator] = (), epoch: int = 0, share: slice = slice(None)
    ) -> Iterator[Batch]:
        """Yield all samples; a seed decides the order, whatever the epoch."""
        seed = generators[0].initial_seed() if generators else 0
        # Gone through twice: by the loader, which reads ahead, and for the weights.
        batches = list(index_batches(len(self), size, generators, share))
        if self.drop_last and generators and len(self) % size and len(batches) > 1:
            batches.pop()
        loader: DataLoader[Any] = DataLoader(
            self._reader(seed),
            batch_sampler=Numbers(self, batches),
            collate_fn=self.collate,
            num_workers=self.workers,
            # Without a GPU there is nothing to pin for, and torch warns.
            pin_memory=self.pin_memory and torch.cuda.is_available(),
            worker_init_fn=self.worker_init,
            # The loader draws a seed for its workers, by default from torch's own generator.
            generator=Generator().manual_seed(seed),
        )
        with explaining_samples():
            for index, raw in zip(batches, loader, strict=True):
                yield self._batch(raw, index)

    def first(self, count: int) -> Batch:
        """Return the first samples."""
        index = torch.arange(min(count, len(self)))
        with explaining_samples():
            return self._batch(self.collate(self._reader(0).__getitems__(self.numbers(index))), index)

    def take(self, index: Tensor) -> "Indexed":
        """Return some of the samples, by their numbers."""
        return Indexed(
            self.dataset,
            self.names,
            transform=self.transform,
            collate=self.collate,
            workers=self.workers,
            pin_memory=self.pin_memory,
            weights=None if self.weights is None else self.weights[index],
            places=torch.tensor(self.numbers(index), dtype=torch.int64),
            batch_size=self.batch_size,
            drop_last=self.drop_last,
            worker_init=self.worker_init,
        )

    def _batch(self, raw: Any, index: Tensor) -> Batch:
        batch = self.names.unpack(raw)
        if self.weights is None:
            return batch
        return Batch(batch.inputs, batch.y, self.weights[index])

    def numbers(self, index: Tensor) -> list[int]:
        """Return the numbers in the dataset of samples of this set."""
        found: list[int] = (index if self.places is None else self.places[index]).tolist()
        return found

    def _reader(self, seed: int) -> "Seeded":
        return Seeded(self.dataset, self.transform, seed)


@final
class Numbers:
    """The numbers of the samples of each batch, for torch's loader; lists are made as they are needed."""

    def __init__(self, samples: Indexed, batches: Sequence[Tensor]) -> None:
        self.samples, self.batches = samples, batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return (self.samples.numbers(index) for index in self.batches)


@final
class Seeded(Dataset[Any]):
    """Read samples with random numbers that follow from a seed and the number of the sample.

    Args:
        dataset: The user's.
        transform: Applied to each sample, or None.
        seed: Of the pass.
    """

    def __init__(self, dataset: Any, transform: Transform | None, seed: int) -> None:
        self.dataset, self.transform, self.seed = dataset, transform, seed

    def __getitems__(self, places: list[int]) -> list[Any]:
        """Return samples, by their numbers; torch's loader calls this with those of a batch."""
        whole = getattr(self.dataset, "__getitems__", None)
        with restored_random():
            if callable(whole):
                seed_all(derived_seed(self.seed, places[0]))
                return [
                    self._changed(sample, place) for sample, place in zip(whole(places), places, strict=True)
                ]
            samples = []
            for place in places:
                seed_all(derived_seed(self.seed, place))
                samples.append(self._changed(self.dataset[place]))
            return samples

    def _changed(self, sample: Any, place: int | None = None) -> Any:
        if self.transform is None:
            return sample
        if place is not None:
            seed_all(derived_seed(self.seed, place))
        return self.transform(sample)


@contextmanager
def restored_random() -> Iterator[None]:
    """Give torch (on the CPU), NumPy and Python their random states back afterwards."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


def seed_all(seed: int) -> None:
    """Seed torch on the CPU, NumPy and Python."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % MOST_SEED)
    random.seed(seed)


def stack_samples(samples: list[Any]) -> Any:
    """Stack the tensors, arrays and numbers of samples; floats of NumPy become torch's default type."""
    try:
        return default_collate([to_tensors(sample) for sample in samples])
    except PluribusError:
        raise
    # torch names neither the entry nor a remedy.
    except (RuntimeError, TypeError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"samples of a batch must have one shape and type, got {_described(samples)} ({reason}). "
            "Pad or resize them in Split(..., collate=...) or transform=..."
        ) from error


def to_tensors(sample: Any) -> Any:
    """Return a sample with tensors in place of arrays and numbers; text stays as it is."""
    if isinstance(sample, Mapping):
        return {name: to_tensors(value) for name, value in sample.items()}
    if isinstance(sample, tuple | list):
        return tuple(to_tensors(value) for value in sample)
    if isinstance(sample, np.ndarray | np.generic | float | int | bool):
        if np.asarray(sample).dtype.kind == "b":
            return torch.as_tensor(sample)
        # An axis is added and taken away again, so that one number is an array.
        return to_inputs(np.asarray(sample)[None])[0]
    return sample


def _described(samples: list[Any]) -> str:
    """Return the shapes of the first samples that differ, in words."""
    shown: list[str] = []
    for sample in samples:
        words = _shape(to_tensors(sample))
        if words not in shown:
            shown.append(words)
    return " and ".join(islice(shown, 2))


def _shape(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(list(value.shape))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_shape(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_shape, value)) + ")"
    return type(value).__name__


@contextmanager
def explaining_samples() -> Iterator[None]:
    """Raise our own errors of a worker as they were: torch wraps them with a traceback as text."""
    try:
        yield
    except InputError as error:
        lines = str(error).splitlines()
        if len(lines) < 2:
            raise
        raise InputError(lines[-1].rpartition("InputError: ")[2]) from error
