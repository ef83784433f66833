"""Stacked: every member has its own copy of some tensors, side by side on axis 0."""

import copy
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Self

import torch
from torch import Tensor, nn

from pluribus.mechanisms.members.index import Row
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.members.tree import columns_of, divide, take
from pluribus.mechanisms.network.network import Network


class Stacked(Tensors):
    """Tensors of which member m has entry m; without any, all rows have the same tensors.

    Args:
        shared: The tree of what all members share.
        own: The tree of what each has for itself, `[members, ...]`.
        mixes: Whether an entry for each sample may stand in place of a member's, proved by the method.
    """

    def __init__(self, shared: nn.Module, own: nn.Module, mixes: bool = False) -> None:
        super().__init__(shared, own)
        self.mixes = mixes

    @classmethod
    def of_network(cls, network: Network, own: Mapping[str, Tensor], mixes: bool = False) -> Self:
        """Return the tensors of a network, some of them `[members, ...]`."""
        return cls(*divide(network, own), mixes)

    def of(self, rows: Iterable[Row]) -> Iterator[dict[str, Tensor]]:
        shared, own = self.parts()
        columns = {name: columns_of(tensor) for name, tensor in own.items()}
        for row in rows:
            yield {**shared, **{name: column[row] for name, column in columns.items()}}

    def keys(self, row: Row) -> dict[str, Hashable]:
        return dict.fromkeys(self.parts()[1], row)

    def keep(self, rows: Sequence[Row]) -> tuple["Stacked", Sequence[Row]]:
        small, own = copy.deepcopy(self), self.parts()[1]
        if not own:  # rows are anything: seeds, or pairs of an input and an exit
            return small, rows
        take(small.own, dict.fromkeys(own, rows))
        return small, range(len(rows))

    def stacks(self, rows: Sequence[Row]) -> bool:
        first = next(itertools.chain(self.own.parameters(), self.own.buffers()), None)
        return first is not None and tuple(rows) == tuple(range(len(first)))

    def stacked(self) -> dict[str, Tensor]:
        return self.parts()[1]

    def why_not_mixed(self, rows: Sequence[Row]) -> str:
        return "" if self.mixes else super().why_not_mixed(rows)

    def mixed(self, rows: Sequence[Row], sizes: Sequence[int]) -> dict[str, Tensor]:
        shared, own = self.parts()
        order = [row for row, size in zip(rows, sizes, strict=True) for _ in range(size)]
        index = torch.tensor(order, device=next(iter(own.values())).device)
        return {**shared, **{name: tensor[index] for name, tensor in own.items()}}
