"""Channels: which indices of which tensors belong together.

Every axis of every parameter starts with channels of its own. Operators make channels one: a sum
couples those of its terms, a product those it sums over. A tensor is described by its labels: a label
is an integer tensor that broadcasts to the tensor's shape and says which channel each entry carries.
A convolution's output `[batch, 64, 8, 8]` has one label `[1, 64, 1, 1]`; queries `[batch, heads,
tokens, size]` have one label `[1, heads, 1, size]`; a weight `[out, in]` has two. An axis along
which no label varies has a fixed size. Of a label that varies along several axes, the last one is
the one that may change its size: heads stay, their size shrinks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

FIXED = 0
"""The channel of what must keep its size."""
FILLER = -1
"""The label of padding, which takes whatever channel it meets."""


@dataclass(frozen=True)
class Labelled:
    """A tensor's shape, and which channels its entries carry."""

    shape: tuple[int, ...]
    labels: tuple[Tensor, ...] = ()


def varying(label: Tensor) -> tuple[int, ...]:
    """The axes along which a label varies."""
    return tuple(axis for axis, size in enumerate(label.shape) if size > 1)


def narrowed(label: Tensor) -> Tensor:
    """The label with size 1 along every axis along which it is constant."""
    for axis in varying(label):
        first = label.narrow(axis, 0, 1)
        if label.stride(axis) == 0 or torch.equal(label, first.expand_as(label)):
            label = first
    return label


def counted(label: Tensor) -> dict[int, int]:
    """The distinct channels of a label, smallest first, with how often each occurs."""
    channels, counts = torch.unique(label, return_counts=True)
    return dict(zip(channels.tolist(), counts.tolist(), strict=True))


class Channels:
    """A partition of all channels into classes that change together; class 0 is fixed."""

    def __init__(self) -> None:
        self._roots = torch.zeros(1, dtype=torch.long)

    def __len__(self) -> int:
        return len(self._roots)

    def fresh(self, shape: Sequence[int], axes: int | None = None) -> Labelled:
        """A tensor whose axes, or the first few, have channels of their own; an axis of size 1 stays so."""
        labels = []
        for axis, size in enumerate(shape[:axes]):
            if size > 1:
                new = torch.arange(size) + len(self._roots)
                self._roots = torch.cat([self._roots, new])
                labels.append(new.view([size if other == axis else 1 for other in range(len(shape))]))
        return Labelled(tuple(shape), tuple(labels))

    def find(self, label: Tensor) -> Tensor:
        """The classes of a label's channels."""
        return torch.where(label < 0, label, self._roots[label.clamp(min=0)])

    def unify(self, one: Tensor, other: Tensor) -> None:
        """Makes the channels of two labels one, entry by entry."""
        shape = torch.broadcast_shapes(one.shape, other.shape)  # type: ignore[no-untyped-call]
        one, other = (label.expand(shape).reshape(-1) for label in (one, other))
        met = (one >= 0) & (other >= 0)
        one, other = one[met], other[met]
        while True:
            one, other = self._roots[one], self._roots[other]
            differ = one != other
            if not differ.any():
                return
            one, other = one[differ], other[differ]
            low, high = torch.minimum(one, other), torch.maximum(one, other)
            self._roots.scatter_reduce_(0, high, low, "amin")
            while not torch.equal(self._roots, settled := self._roots[self._roots]):
                self._roots = settled

    def fix(self, label: Tensor) -> None:
        """Makes a label's channels keep their size."""
        self.unify(label, torch.tensor(FIXED))

    def settle(self, label: Tensor) -> Tensor | None:
        """The label as it is known now; None where it says nothing. A single channel is fixed."""
        label = narrowed(self.find(label))
        if label.numel() == 1:
            self.fix(label)
            return None
        return label

    def labelled(self, shape: Sequence[int], labels: Iterable[Tensor]) -> Labelled:
        """A tensor with those labels that say something."""
        settled = (self.settle(label) for label in labels)
        return Labelled(tuple(shape), tuple(label for label in settled if label is not None))

    def tie(self, value: Labelled, axes: Iterable[int]) -> Labelled:
        """The tensor with all positions along some axes carrying the same channels."""
        chosen = set(axes)
        for label in value.labels:
            for axis in chosen.intersection(varying(label)):
                self.unify(label, label.narrow(axis, 0, 1))
        return self.labelled(value.shape, value.labels)

    def fixed_along(self, value: Labelled, axes: Iterable[int]) -> Labelled:
        """The tensor with fixed sizes along some axes."""
        chosen = set(axes)
        for label in value.labels:
            if chosen.intersection(varying(label)):
                self.fix(label)
        return self.labelled(value.shape, value.labels)

    def along(self, value: Labelled, axis: int) -> Tensor:
        """The channels along one axis, `[size]`, the same at every other position."""
        for label in value.labels:
            if axis in varying(label):
                others = [other for other in varying(label) if other != axis]
                tied = self.tie(Labelled(value.shape, (label,)), others).labels
                return tied[0].reshape(-1) if tied else torch.zeros(value.shape[axis], dtype=torch.long)
        return torch.zeros(value.shape[axis], dtype=torch.long)

    def join(
        self, operands: Sequence[tuple[Labelled, Sequence[int]]], shape: Sequence[int], kept: Sequence[int]
    ) -> Labelled:
        """A sum of products, as in `torch.einsum`, of which elementwise operators are a case.

        Args:
            operands: Tensors, each with the letter (a number) of each of its axes.
            shape: Of the result.
            kept: The letters of the result's axes; all others are summed over.
        """
        rank = 1 + max(kept, default=0)
        rank = max([rank, *(1 + max(letters, default=0) for _, letters in operands)])
        placed = [[_place(label, letters, rank) for label in value.labels] for value, letters in operands]
        for ones, others in combinations(placed, 2):
            for one in ones:
                for other in others:
                    self._couple(one, other)
        bare: set[int] = set()
        for (value, letters), labels in zip(operands, placed, strict=True):
            present = {letter for letter, size in zip(letters, value.shape, strict=True) if size > 1}
            bare |= present.difference(*(varying(label) for label in labels))
        free = []
        for label in (label for labels in placed for label in labels):
            if varying(label)[-1] in bare:  # it meets an axis of fixed size
                self.fix(label)
            else:
                free.append(label)
        return self.labelled(shape, self._projected(_merged(map(self.find, free)), kept))

    def _couple(self, one: Tensor, other: Tensor) -> None:
        few, many = sorted((one, other), key=lambda label: len(varying(label)))
        if not set(varying(few)) & set(varying(many)):
            return
        if not set(varying(few)) <= set(varying(many)):
            self.fix(few)
            self.fix(many)
        elif varying(many)[-1] in varying(few):
            self.unify(few, many)
        else:  # as a scale of each head meets the channels of the heads
            self.fix(few)

    def _projected(self, labels: Iterable[Tensor], kept: Sequence[int]) -> Iterator[Tensor]:
        for label in labels:
            axes = varying(label)
            if not axes or axes[-1] not in kept:
                continue
            summed = [axis for axis in range(label.ndim) if axis not in kept]
            for axis in summed:
                self.unify(label, label.narrow(axis, 0, 1))
                label = label.narrow(axis, 0, 1)
            order = [*kept, *summed]
            yield label.permute(order).reshape([label.shape[axis] for axis in kept])


def _place(label: Tensor, letters: Sequence[int], rank: int) -> Tensor:
    """The label with its axes in the order of their letters, among `rank` of them."""
    sizes = [1] * rank
    for letter, size in zip(letters, label.shape, strict=True):
        sizes[letter] = size
    return label.permute(sorted(range(len(letters)), key=lambda axis: letters[axis])).reshape(sizes)


def _merged(labels: Iterable[Tensor]) -> list[Tensor]:
    """Labels that say the same are one; padding takes what the other says."""
    result: list[Tensor] = []
    for label in map(narrowed, labels):
        for position, other in enumerate(result):
            if varying(label) == varying(other) and bool(
                ((label == other) | (label < 0) | (other < 0)).all()
            ):
                result[position] = torch.where(other < 0, label, other)
                break
        else:
            result.append(label)
    return result
