"""Tensors: what a member is made of."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Self

from torch import Tensor, nn

from pluribus.errors import InputError
from pluribus.mechanisms.members.index import Row
from pluribus.mechanisms.members.tree import named_tensors


class Tensors(nn.Module, ABC):
    """The tensors of all members.

    `keys` is the contract that plans, freezing, shrinking and files rest on: two rows with an equal key
    have the same tensor, and a tensor without a key is the same for all rows. Buffers that `of` yields are
    views of the store, or statistics that training writes would be lost.

    Args:
        shared: The tree of the tensors from which `of` takes what has no key.
        own: The tree of what rows have for themselves, as the class defines it.
    """

    def __init__(self, shared: nn.Module, own: nn.Module) -> None:
        super().__init__()
        self.shared, self.own = shared, own

    @abstractmethod
    def of(self, rows: Iterable[Row]) -> Iterator[dict[str, Tensor]]:
        """Yield the complete tensors of one row after the other, by name."""

    @abstractmethod
    def keys(self, row: Row) -> dict[str, Hashable]:
        """Map each tensor that rows have for themselves to a key; rows with equal keys share the tensor."""

    def keep(self, rows: Sequence[Row]) -> tuple["Tensors", Sequence[Row]]:
        """Return the tensors that some rows need, and the names that these rows have there."""
        return copy.deepcopy(self), rows

    def resolved(self, rows: Sequence[Row]) -> "Tensors":
        """Return the tensors of these rows for inference: no gradients, as little left to compute as pays."""
        return copy.deepcopy(self).requires_grad_(False)

    def stacks(self, rows: Sequence[Row]) -> bool:
        """Return whether `stacked` gives the tensors of exactly these rows."""
        return False

    def stacked(self) -> dict[str, Tensor]:
        """Return the tensors with keys of all rows, `[rows, ...]`, without a copy of what is stored."""
        raise InputError("rows are no stack of tensors.")

    def why_not_mixed(self, rows: Sequence[Row]) -> str:
        """Return why samples of several rows may not share a training batch; empty where they may."""
        return "members need weights of their own"

    def mixed(self, rows: Sequence[Row], sizes: Sequence[int]) -> dict[str, Tensor]:
        """Return the tensors of one training batch with so many samples of each row."""
        raise InputError(f"rows cannot share a batch: {self.why_not_mixed(rows)}.")

    def covering_rows(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return rows that together take every value of every tensor; `rows` are those of eval mode."""
        return rows

    def statistics(self) -> dict[str, Tensor]:
        """Return the shared buffers, which count a batch once however many rows see it."""
        return dict(self.shared.named_buffers())

    def of_one(self, row: Row) -> dict[str, Tensor]:
        """Return the complete tensors of one row."""
        return next(iter(self.of([row])))

    def parts(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return what all rows share and what rows have for themselves, by name."""
        return named_tensors(self.shared), named_tensors(self.own)

    def copied(self) -> Self:
        """Return a deep copy."""
        return copy.deepcopy(self)
