"""Split: the samples of one part of a task, in memory or streamed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import torch
from torch import Generator, Tensor

from pluribus.data.batch import Batch, Names
from pluribus.data.given_samples import held_samples, streamed_samples, to_tensors_in_memory, to_weights
from pluribus.data.in_memory import InMemory, joined
from pluribus.data.indexed import Collate, Indexed, Transform
from pluribus.data.limits import MOST_BYTES, check_bytes
from pluribus.data.sample_set import SampleSet
from pluribus.errors import InputError
from pluribus.mechanisms.network.batches import accepted_by
from pluribus.mechanisms.network.inputs import Inputs
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
        held = held_samples(x, y, names, counted)
        changed = transform is not None or collate is not None
        options: dict[str, Any] = {"transform": transform, "collate": collate, "workers": workers}
        options["pin_memory"] = pin_memory
        if held is not None and not changed:
            self.samples: SampleSet = held
        elif held is not None:
            self.samples = Indexed(held, names, weights=counted, **options)
        else:
            self.samples = streamed_samples(x, names, counted, length, options)
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
            return cls.of(InMemory(to_tensors_in_memory(x), None))
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

    def example_for(self, network: Any) -> Inputs:
        """Return the inputs of two samples, without entries that the network does not accept."""
        return accepted_by(self.example(2).inputs, network.forward)

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

    def sample(self, most: int) -> "Split":
        """Return up to so many samples of a stream in memory; what is in memory stays whole.

        They are evenly spaced; of samples with an order of their own they are the first. Those that are
        read by number make one batch, so that texts are padded to one length.
        """
        check("most", most, int, at_least=1)
        if isinstance(self.samples, InMemory):
            return self
        if isinstance(self.samples, Indexed):
            count = min(most, len(self))
            index = torch.linspace(0, len(self) - 1, count, dtype=torch.float64).long()
            return Split.of(joined([next(self.samples.take(index).read(count))]))
        found, seen = [], 0
        for batch in self.samples.read(READ_AT_ONCE):
            found.append(batch)
            seen += len(batch)
            if seen >= most:
                break
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
