"""Positions: the part of a value that is needed, or there, along one of its axes."""

from dataclasses import dataclass

import torch
from torch import Tensor

# Below this many channels a kernel's time does not depend on their number, so that rounding up only costs.
FEWEST_ROUNDED = 32


class MustBeWhole(Exception):
    """Raised where a step has no parts along an axis and must be computed whole."""


@dataclass(frozen=True, eq=False)
class Positions:
    """Some positions along one axis of a value.

    Attributes:
        axis: The axis, counted from 0.
        chosen: Whether each position is one of them, `[size]`.
    """

    axis: int
    chosen: Tensor

    @property
    def count(self) -> int:
        """Return how many there are."""
        return int(self.chosen.sum())

    def index(self, device: torch.device) -> Tensor:
        """Return the positions as numbers, `[count]`."""
        return self.chosen.nonzero().flatten().to(device)


# None is the whole value.
Part = Positions | None


def union(one: Part, other: Part) -> Part:
    """Return the positions of either; the whole value where they lie along different axes."""
    if one is None or other is None or one.axis != other.axis:
        return None
    return Positions(one.axis, one.chosen | other.chosen)


def rounded_up(part: Part, align: int, fewest: int = FEWEST_ROUNDED) -> Part:
    """Add positions up to a multiple of `align`, because kernels run fastest on such widths."""
    if part is None or part.count < fewest or part.count % align == 0:
        return part
    chosen = part.chosen.clone()
    others = (~chosen).nonzero().flatten()
    chosen[others[: align - part.count % align]] = True
    return Positions(part.axis, chosen)


def at_least_one(part: Part) -> Part:
    """Return the positions, or the first one where there are none: few operators run on empty tensors."""
    if part is None or part.count:
        return part
    first = torch.arange(len(part.chosen), device=part.chosen.device) == 0
    return Positions(part.axis, first)
