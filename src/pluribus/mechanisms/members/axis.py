"""The member axis. Members come first, `[members, batch, ...]`, and only this file reshapes that axis."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pluribus.errors import InputError


def fold(values: Tensor) -> Tensor:
    """`[members, batch, ...]` to `[members * batch, ...]`, member-major."""
    if values.ndim < 2:
        raise InputError(
            f"fold expects [members, batch, ...], however: shape {tuple(values.shape)}. "
            "Use fork to give a plain batch a member axis."
        )
    return values.flatten(0, 1)


def unfold(values: Tensor, members: int) -> Tensor:
    """`[members * batch, ...]` to `[members, batch, ...]`, the inverse of `fold`."""
    if members < 1 or values.ndim < 1 or values.shape[0] % members:
        raise InputError(
            f"unfold expects a first axis that {members} members divide, "
            f"however: shape {tuple(values.shape)}."
        )
    return values.reshape(members, values.shape[0] // members, *values.shape[1:])


def fork(values: Tensor, members: int) -> Tensor:
    """The same `[batch, ...]` for every member, `[members, batch, ...]`, without copying."""
    return values.expand(members, *values.shape)


def join(rows: Sequence[Tensor]) -> Tensor:
    """One `[batch, ...]` per member to `[members, batch, ...]`."""
    return torch.stack(list(rows))


def split_batch(batch: int, members: int) -> list[Tensor]:
    """A random part of the batch for each member, `[part]` sample indices, sizes equal within one.

    Every part has at least two samples, as BatchNorm needs; in a batch too small for that a random
    choice of members goes without.
    """
    active = max(1, min(members, batch // 2))
    order, chosen = torch.randperm(batch), torch.randperm(members)[:active].tolist()
    parts = [order[:0]] * members
    for member, part in zip(chosen, order.tensor_split(active), strict=True):
        parts[member] = part
    return parts
