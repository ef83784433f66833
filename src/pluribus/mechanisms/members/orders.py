"""Orders: whether each member goes through the training data in an order of its own.

Members that start alike and see the same batches stay alike for ever. An order for each tells them apart. A
training batch is then a batch of the first order, followed by one of the second, and so on.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def has_own_orders(shuffle_members: bool | None, start: str) -> bool:
    """Return whether members have orders of their own; None is where they start as copies of one network."""
    return start == "copy" if shuffle_members is None else shuffle_members


def count_orders(members: int, own: bool) -> int:
    """Return how many orders of the samples training goes through at once."""
    return members if own else 1


def assign_orders(batch: int, rows: Sequence[Any], own: bool) -> list[Tensor] | None:
    """Return the samples of its order for each row; None, all samples, where there is one order.

    Args:
        batch: How many samples there are, of all orders together.
        rows: The members.
        own: Whether each has an order of its own.

    Example:
        >>> assign_orders(4, [0, 1], own=True)
        [tensor([0, 1]), tensor([2, 3])]
    """
    return list(torch.arange(batch).tensor_split(len(rows))) if own else None
