"""Depths: axes that end at the number of exits of a network."""

from dataclasses import replace

from pluribus.axes import DEPTHS, Axis, Between
from pluribus.search.space import Choice

FEWEST = 2
"""Depths with which there is something to choose."""


def why_not(choice: Choice, depths: int | None) -> str:
    """Return why a network cannot have a method; empty if it can.

    Args:
        choice: The method with its axes.
        depths: How many exits the network can have; None if it can have none.
    """
    needs = any(getattr(axis, "high", None) == DEPTHS for axis in choice.axes.values())
    if not needs or (depths or 0) >= FEWEST:
        return ""
    return "the network has no stages to exit after"


def with_depths(choice: Choice, depths: int | None) -> Choice:
    """Return a method whose axes end at the number of exits where they named it."""
    if depths is None:
        return choice
    axes = {name: _resolved(axis, depths) for name, axis in choice.axes.items()}
    return replace(choice, axes=axes)


def _resolved(axis: Axis, depths: int) -> Axis:
    if not isinstance(axis, Between) or axis.high != DEPTHS:
        return axis
    return replace(axis, high=depths, low=min(axis.low, depths))
