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
from itertools import chain, combinations, product

import torch
from torch import Tensor

# The channel of what must keep its size.
FIXED = 0
# The label of padding, which takes whatever channel it meets.
FILLER = -1


@dataclass(frozen=True)
class Labelled:
    """A tensor's shape, and which channels its entries carry."""

    shape: tuple[int, ...]
    labels: tuple[Tensor, ...] = ()


def varying(label: Tensor) -> tuple[int, ...]:
    """Return the axes along which a label varies."""
    return tuple(axis for axis, size in enumerate(label.shape) if size > 1)


def narrowed(label: Tensor) -> Tensor:
    """Return the label with size 1 along every axis along which it is constant."""
    for axis in varying(label):
        first = label.narrow(axis, 0, 1)
        # A stride of 0 is an expanded axis, which need not be compared.
        if label.stride(axis) == 0 or torch.equal(label, first.expand_as(label)):
            label = first
    return label


def counted(label: Tensor) -> dict[int, int]:
    """Return the distinct channels of a label, smallest first, with how often each occurs."""
    channels, counts = torch.unique(label, return_counts=True)
    return dict(zip(channels.tolist(), counts.tolist(), strict=True))


class Channels:
    """A partition of all channels into classes that change together; class 0 is fixed.

    A union-find over tensors: a class is the smallest number among its channels, its root.
    """

    def __init__(self) -> None:
        # By channel, itself or a smaller one of its class; there is room for channels to come.
        self._smaller = torch.zeros(1, dtype=torch.long)
        self._count = 1

    def __len__(self) -> int:
        return self._count

    def fresh(self, shape: Sequence[int], axes: int | None = None) -> Labelled:
        """Return a tensor whose axes, or the first few, have channels of their own; size 1 has none."""
        labels = []
        for axis, size in enumerate(shape[:axes]):
            if size > 1:
                new = torch.arange(self._count, self._count + size)
                self._count += size
                sizes = [1] * len(shape)
                sizes[axis] = size
                labels.append(new.view(sizes))
        if self._count > len(self._smaller):
            # Twice the room, because a large network has hundreds of tensors.
            room = torch.arange(2 * self._count)
            room[: len(self._smaller)] = self._smaller
            self._smaller = room
        return Labelled(tuple(shape), tuple(labels))

    def find(self, label: Tensor) -> Tensor:
        """Return the classes of a label's channels; padding stays padding."""
        return torch.where(label < 0, label, self._roots(label.clamp(min=0)))

    def unify(self, one: Tensor, other: Tensor) -> None:
        """Make the channels of two labels one, entry by entry."""
        shape = torch.broadcast_shapes(one.shape, other.shape)  # type: ignore[no-untyped-call]
        one, other = (label.expand(shape).reshape(-1) for label in (one, other))
        met = (one >= 0) & (other >= 0)
        one, other = one[met], other[met]
        while True:
            one, other = self._roots(one), self._roots(other)
            differ = one != other
            if not differ.any():
                return
            one, other = one[differ], other[differ]
            low, high = torch.minimum(one, other), torch.maximum(one, other)
            # A root that meets several smaller ones takes the smallest; the next round couples the rest.
            self._smaller.scatter_reduce_(0, high, low, "amin")

    def _roots(self, channels: Tensor) -> Tensor:
        """Return the roots of channels, at which these point directly from now on."""
        found = self._smaller[channels]
        while True:
            further = self._smaller[found]
            if torch.equal(found, further):
                break
            found = further
        self._smaller[channels] = found
        return found

    def fix(self, label: Tensor) -> None:
        """Make a label's channels keep their size."""
        self.unify(label, torch.tensor(FIXED))

    def settle(self, label: Tensor) -> Tensor | None:
        """Return the label as it is known now; None if it carries a single channel.

        A single channel cannot change its number without vanishing, and is fixed.
        """
        label = narrowed(self.find(label))
        if label.numel() == 1:
            self.fix(label)
            return None
        return label

    def labelled(self, shape: Sequence[int], labels: Iterable[Tensor]) -> Labelled:
        """Return a tensor with those labels that carry several channels.

        Args:
            shape: Of the tensor.
            labels: Each broadcasts to the shape.
        """
        settled = (self.settle(label) for label in labels)
        return Labelled(tuple(shape), tuple(label for label in settled if label is not None))

    def tie(self, value: Labelled, axes: Iterable[int]) -> Labelled:
        """Return the tensor with all positions along some axes carrying the same channels.

        Args:
            value: The tensor.
            axes: Along which all positions are made one.
        """
        chosen = set(axes)
        for label in value.labels:
            for axis in chosen.intersection(varying(label)):
                self.unify(label, label.narrow(axis, 0, 1))
        return self.labelled(value.shape, value.labels)

    def fixed_along(self, value: Labelled, axes: Iterable[int]) -> Labelled:
        """Return the tensor with fixed sizes along some axes."""
        chosen = set(axes)
        for label in value.labels:
            if chosen.intersection(varying(label)):
                self.fix(label)
        return self.labelled(value.shape, value.labels)

    def along(self, value: Labelled, axis: int) -> Tensor:
        """Return the channels along one axis, `[size]`, made the same at every other position."""
        for label in value.labels:
            if axis not in varying(label):
                continue
            others = [other for other in varying(label) if other != axis]
            tied = self.tie(Labelled(value.shape, (label,)), others).labels
            # After tying, all channels may have turned out to be one, which is fixed.
            if tied:
                return tied[0].reshape(-1)
            break
        return torch.full((value.shape[axis],), FIXED)

    def join(
        self, operands: Sequence[tuple[Labelled, Sequence[int]]], shape: Sequence[int], kept: Sequence[int]
    ) -> Labelled:
        """Return the labels of a sum of products, as in `torch.einsum`; elementwise operators are a case.

        Args:
            operands: Tensors, each with the letter (a number) of each of its axes.
            shape: Of the result.
            kept: The letters of the result's axes; all others are summed over.
        """
        used = [letter for _, letters in operands for letter in letters]
        rank = 1 + max([0, *kept, *used])
        placed = [[_place(label, letters, rank) for label in value.labels] for value, letters in operands]
        for ones, others in combinations(placed, 2):
            for one, other in product(ones, others):
                self._couple(one, other)
        bare: set[int] = set()
        for (value, letters), labels in zip(operands, placed, strict=True):
            bare |= _bare_letters(value, letters, labels)
        free = []
        for label in chain.from_iterable(placed):
            # The axis that may change its size meets an axis of fixed size in another operand.
            if varying(label)[-1] in bare:
                self.fix(label)
            else:
                free.append(label)
        return self.labelled(shape, self._projected(_merged(map(self.find, free)), kept))

    def _couple(self, one: Tensor, other: Tensor) -> None:
        """Make channels one where two labels vary along the same axes."""
        few, many = sorted((one, other), key=lambda label: len(varying(label)))
        few_axes, many_axes = varying(few), varying(many)
        if set(few_axes).isdisjoint(many_axes):
            return
        # Labels that overlap in part would need channels that are pairs of channels: both stay.
        if not set(few_axes) <= set(many_axes):
            self.fix(few)
            self.fix(many)
        elif many_axes[-1] in few_axes:
            self.unify(few, many)
        # A scale of each head meets the channels of all heads, and how many heads there are must stay.
        else:
            self.fix(few)

    def _projected(self, labels: Iterable[Tensor], kept: Sequence[int]) -> Iterator[Tensor]:
        """Yield the labels that remain after all axes but the kept ones were summed over."""
        for label in labels:
            axes = varying(label)
            # Where the axis that may change its size is summed over, the label is forgotten.
            if not axes or axes[-1] not in kept:
                continue
            summed = [axis for axis in range(label.ndim) if axis not in kept]
            for axis in summed:
                # A sum over heads adds their channels one by one, which makes them the same.
                self.unify(label, label.narrow(axis, 0, 1))
                label = label.narrow(axis, 0, 1)
            order = [*kept, *summed]
            yield label.permute(order).reshape([label.shape[axis] for axis in kept])


def _bare_letters(value: Labelled, letters: Sequence[int], labels: Sequence[Tensor]) -> set[int]:
    """Return the letters of the axes, longer than 1, along which no label of an operand varies."""
    present = {letter for letter, size in zip(letters, value.shape, strict=True) if size > 1}
    return present.difference(*(varying(label) for label in labels))


def _place(label: Tensor, letters: Sequence[int], rank: int) -> Tensor:
    """Return the label with its axes in the order of their letters, among `rank` of them."""
    sizes = [1] * rank
    for letter, size in zip(letters, label.shape, strict=True):
        sizes[letter] = size
    order = sorted(range(len(letters)), key=lambda axis: letters[axis])
    return label.permute(order).reshape(sizes)


def _merged(labels: Iterable[Tensor]) -> list[Tensor]:
    """Return the distinct labels; padding takes the channels of a label that it matches."""
    result: list[Tensor] = []
    for label in map(narrowed, labels):
        for position, other in enumerate(result):
            if _is_same(label, other):
                result[position] = torch.where(other < 0, label, other)
                break
        else:
            result.append(label)
    return result


def _is_same(one: Tensor, other: Tensor) -> bool:
    if varying(one) != varying(other):
        return False
    agree = (one == other) | (one < 0) | (other < 0)
    return bool(agree.all())
