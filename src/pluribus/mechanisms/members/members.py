"""Members: which there are (Index), what they are made of (Tensors), how the user's code runs (Code)."""

import copy
from collections.abc import Sequence
from typing import Any, Self

from torch import nn

from pluribus.mechanisms.members.cache import Cache
from pluribus.mechanisms.members.code import Code
from pluribus.mechanisms.members.index import Index, Row
from pluribus.mechanisms.members.tensors import Tensors


class Members(nn.Module):
    """All members of an ensemble, by composition.

    Args:
        index: Which members there are.
        tensors: What they are made of.
        code: How the user's code runs for them.
        lowers: Whether live ensembles run by a plan too: members share so much that the second that
            reading the data flow takes is soon won back. Frozen ensembles are graphs of it in any case.

    Attributes:
        cache: What was read and planned for them.
    """

    def __init__(self, index: Index, tensors: Tensors, code: Code, lowers: bool = False) -> None:
        super().__init__()
        # This order is that of the parameters, by which optimizers know them.
        self.index, self.tensors = index, tensors
        self.code, self.lowers = code, lowers
        self.cache = Cache()

    @property
    def count(self) -> int:
        """The number of rows of eval mode."""
        return self.index.count

    def train(self, mode: bool = True) -> Self:
        """Put the members and the user's code into train or eval mode."""
        self.code.caller.train(mode)
        return super().train(mode)

    def keep(self, positions: Sequence[int]) -> "Members":
        """Return some rows of eval mode alone, in this order, without what no other row uses."""
        rows = self.index.rows(training=False)
        tensors, kept = self.tensors.keep([rows[position] for position in positions])
        index = self.index.keep(positions, kept)
        code, tensors = self.code.keep(tensors, index.rows(training=False))
        # Modes belong to the code, so that a smaller ensemble needs code of its own.
        return self.rebuilt(index, tensors, copy.deepcopy(code) if code is self.code else code)

    def rebuilt(self, index: Index, tensors: Tensors, code: Code) -> "Members":
        """Return members of the same kind with other parts."""
        members = Members(index, tensors, code, self.lowers)
        nn.Module.train(members, self.training)  # the code has its modes already
        return members

    def as_module(self, row: Row) -> nn.Module:
        """Return one row as a plain module in eval mode with copies of its tensors."""
        return self.code.as_module(self.tensors, row)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "cache": Cache()}
