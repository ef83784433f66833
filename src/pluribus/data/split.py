"""Split: the samples of one part of a task, in memory or streamed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, TensorDataset
from torch.utils.data.sampler import BatchSampler

from pluribus.data.batch import Batch, Names
from pluribus.data.in_memory import InMemory, joined
from pluribus.data.indexed import Collate, Indexed, Transform
from pluribus.data.limits import MOST_BYTES, check_bytes
from pluribus.data.own_order import iterable_set, loader_set
from pluribus.data.sample_set import SampleSet
from pluribus.data.samples import to_inputs, to_targets
from pluribus.errors import InputError
from pluribus.mechanisms.network.inputs import Inputs, accepted_by
from pluribus.ranges import check

READ_AT_ONCE = 256
"""Samples that are read at a time where all are read."""
CHECKED = 8
"""Samples of a stream that are looked at before training."""


@final
class Split:
    """Hold samples: inputs and targets.

    In memory they are tensors `x` and `y`, both `[count, ...]`, and the fastest to read. From datasets and
    loaders they are streamed: a batch is read when it is needed. Targets are class numbers (int64), numbers
    (floats), or probabilities of classes (floats, `[classes]`). `split[i]` is sample i.

    Args:
        x: Inputs: a tensor, a NumPy array, a DataFrame of numbers, or a tuple or dict of these for networks
            with several inputs. Or, without `y`, whole samples: a `Dataset` of PyTorch or Hugging Face, by
            number or iterable, a `DataLoader`, or a list. Samples are pairs of input and target, tuples that
            end with the target, or dicts with an entry `labels`, `label`, `target` or `y`.
        y: Targets: a tensor, a NumPy array, a list or a Series; None with whole samples.
        weights: How much each sample counts in training, `[count]`, at least 0; samples that are dicts may
            have an entry `sample_weight`.
        target: Name of the entry that is the target, where samples are dicts.
        transform: Applied to each sample when it is read, such as an augmentation: takes and returns a sample
            as the dataset has it.
        collate: Makes a batch of a list of samples, such as one that pads; by default tensors are stacked.
        workers: Processes that read ahead; 0 reads in this one.
        pin_memory: Copy batches into memory that a GPU reads faster.
        length: How many samples there are, where an iterable dataset does not know it.

    Example:
        >>> import numpy as np
        >>> Split(np.zeros((7, 3)), np.zeros(7, dtype=int))
        Split(7 × [3])
        >>> Split([{"a": torch.zeros(2), "b": torch.zeros(5), "label": 1}] * 3)
        Split(3 × a [2], b [5], streamed)
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        *,
        weights: Any = None,
        target: str | None = None,
        transform: Transform | None = None,
        collate: Collate | None = None,
        workers: int = 0,
        pin_memory: bool = False,
        length: int | None = None,
    ) -> None:
        check("workers", workers, int, at_least=0)
        check("pin_memory", pin_memory, bool)
        names = Names(target)
        counted = None if weights is None else to_weights(weights)
        held = _held(x, y, names, counted)
        changed = transform is not None or collate is not None
        options: dict[str, Any] = {"transform": transform, "collate": collate, "workers": workers}
        options["pin_memory"] = pin_memory
        if held is not None and not changed:
            self.samples: SampleSet = held
        elif held is not None:
            self.samples = Indexed(held, names, weights=counted, **options)
        else:
            self.samples = _streamed(x, names, counted, length, options)
        self._first: Batch | None = None

    @classmethod
    def of(cls, samples: SampleSet) -> "Split":
        """Return the split of a set of samples."""
        split = object.__new__(cls)
        split.samples, split._first = samples, None
        return split

    @classmethod
    def of_inputs(cls, x: Any) -> "Split":
        """Return a split without targets, of inputs in memory or of a dataset; splits as they are."""
        if isinstance(x, Split):
            return x
        if isinstance(x, tuple | Mapping) or hasattr(x, "dtype") or hasattr(x, "columns"):
            return cls.of(InMemory(_inputs(x), None))
        return cls(x)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        if not isinstance(self.samples, InMemory | Indexed):
            raise InputError(f"samples must have numbers to be read by, got {self.samples.own_order}.")
        return self.samples[index]

    def __repr__(self) -> str:
        if not len(self):
            return "Split(0 samples)"
        shapes = self.shapes
        words = [f"{name} {list(shape)}".strip() for name, shape in shapes.items()]
        streamed = ", streamed" if self.streams else ""
        return f"Split({len(self)} × {', '.join(words)}{streamed})"

    @property
    def streams(self) -> bool:
        """Return whether samples are read when they are needed; else they are in memory."""
        return not isinstance(self.samples, InMemory)

    @property
    def x(self) -> Any:
        """Return the inputs, where they are in memory: a tensor, a tuple or a dict."""
        return self._tensors().x

    @property
    def y(self) -> Any:
        """Return the targets, where they are in memory."""
        return self._tensors().y

    @property
    def weights(self) -> Tensor | None:
        """Return the weights of the samples, where they are in memory and not all alike."""
        return self._tensors().weights

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each input of the first sample, by name; positional ones are "" or "0", "1"."""
        inputs = self.example(1).inputs
        found = {}
        for place, value in enumerate(inputs.args):
            name = str(place) if len(inputs.args) > 1 else ""
            found[name] = tuple(value.shape[1:])
        for name, value in inputs.keywords.items():
            if isinstance(value, Tensor):
                found[name] = tuple(value.shape[1:])
        return found

    def example(self, count: int = 2) -> Batch:
        """Return the first samples, up to 8 of a stream, which are read once."""
        if isinstance(self.samples, InMemory):
            return self.samples.first(count)
        if self._first is None:
            self._first = self.samples.first(CHECKED)
        return self._first.take(slice(0, count))

    def take(self, index: Tensor) -> "Split":
        """Return some of the samples, by their numbers, `[count]`."""
        return Split.of(self.samples.take(index))

    def read(
        self, size: int, generators: Sequence[Generator] = (), epoch: int = 0, share: slice = slice(None)
    ) -> Iterator[Batch]:
        """Yield all samples in batches.

        Args:
            size: The most samples of a batch; loaders with batches of their own keep these.
            generators: One for each order of the samples, which a batch holds one after the other; without
                any, samples come as they lie.
            epoch: Passes before this one, for sets with an order of their own.
            share: The part of every batch that this process takes.
        """
        check("size", size, int, at_least=1)
        return self.samples.read(size, generators, epoch, share)

    def batches(self, size: int, generator: Generator | None = None) -> Iterator[tuple[Any, Tensor]]:
        """Yield all samples, up to `size` at a time, in an order drawn from `generator` or as they lie."""
        for batch in self.read(size, () if generator is None else (generator,)):
            yield batch.x, batch.target

    def in_memory(self, most_bytes: int = MOST_BYTES) -> "Split":
        """Return the same samples, read into memory once.

        Args:
            most_bytes: Memory that they may take.
        """
        if isinstance(self.samples, InMemory):
            return self
        found, size = [], 0
        for batch in self.samples.read(READ_AT_ONCE):
            tensors = [*batch.inputs.tensors(), *([] if batch.y is None else [batch.y])]
            size += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
            check_bytes("the samples of a dataset", size, most_bytes)
            found.append(batch)
        if not found:
            raise InputError("a dataset must have at least one sample, got none.")
        return Split.of(joined(found))

    def _tensors(self) -> InMemory:
        if not isinstance(self.samples, InMemory):
            raise InputError(
                "x and y must be in memory to be read at once, got samples that are streamed. "
                "Use split.read(size), or split.in_memory()."
            )
        return self.samples


class InputBatches:
    """The inputs of a split in batches, as often as they are gone through.

    Args:
        split: The samples.
        size: The most samples of a batch.
        forward: Of the network; entries of samples that it does not accept are left out.
    """

    def __init__(self, split: Split, size: int, forward: Callable[..., Any]) -> None:
        self.split, self.size, self.forward = split, size, forward

    def __iter__(self) -> Iterator[Inputs]:
        for batch in self.split.read(self.size):
            yield accepted_by(batch.inputs, self.forward)


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


def _inputs(x: Any) -> Any:
    """Return inputs in memory as tensors."""
    if isinstance(x, Mapping):
        return {name: to_inputs(value) for name, value in x.items()}
    return tuple(to_inputs(value) for value in x) if isinstance(x, tuple) else to_inputs(x)


def _held(x: Any, y: Any, names: Names, weights: Tensor | None) -> InMemory | None:
    """Return samples that are tensors or arrays; None where they are to be streamed."""
    if y is not None:
        return InMemory(_inputs(x), to_targets(y), weights)
    if isinstance(x, TensorDataset) and len(x.tensors) == 2:
        return InMemory(x.tensors[0], x.tensors[1], weights)
    if not isinstance(x, Mapping):
        return None
    # Tokenizers return inputs and labels of all samples as one dict.
    batch = names.unpack({name: to_inputs(value) for name, value in x.items()})
    return InMemory(batch.x, batch.target, batch.weights if weights is None else weights)


def _streamed(
    x: Any, names: Names, weights: Tensor | None, length: int | None, options: dict[str, Any]
) -> SampleSet:
    """Return samples that are read when they are needed."""
    if isinstance(x, DataLoader):
        return _of_loader(x, names, weights, length, options)
    if hasattr(x, "dtype") or hasattr(x, "iloc"):
        raise InputError(
            f"a split must be made of inputs and targets, or of a Dataset, got {type(x).__name__} alone."
        )
    dataset = _with_tensors(x)
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


def _of_loader(
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
        _with_tensors(loader.dataset),
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


def _with_tensors(dataset: Any) -> Any:
    """Return a dataset of Hugging Face that gives tensors; others as they are."""
    # The package is not imported: whoever has such a dataset has it.
    foreign = type(dataset).__module__.partition(".")[0] == "datasets"
    if not foreign or not hasattr(dataset, "with_format"):
        return dataset
    kind = getattr(dataset, "format", {}) or {}
    return dataset if kind.get("type") else dataset.with_format("torch")
