"""Configurations that come first: those of methods without axes, of methods that a search tries wholly, and
the defaults of all others.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from pluribus.axes import OneOf, listed
from pluribus.errors import SettingError
from pluribus.search.parameters import Part, parts_of
from pluribus.search.space import METHOD, Choice, Space

MOST_LISTED = 1000
"""Most configurations that are enumerated."""


def first_parameters(space: Space, flat: bool = False, most: int = MOST_LISTED) -> list[dict[str, Any]]:
    """Return the parameters of all configurations of methods that are enumerated, or have no axes.

    Args:
        space: The space.
        flat: Name parameters as in a flat space.
        most: Configurations of a method without axes of its own. If sizes of the network and settings of
            training give it more, the first trial is of this method, and the sampler draws the others.

    Raises:
        SettingError: there are too many, or an axis cannot be listed.
    """
    found: list[dict[str, Any]] = []
    for choice in space.choices:
        if choice.axes and choice.kind not in space.enumerated:
            continue
        listed_ones = _grid(space, choice, flat)
        if choice.kind not in space.enumerated and len(listed_ones) > most:
            listed_ones = [{METHOD: choice.kind} if len(space.choices) > 1 else {}]
        found += listed_ones
    if len(found) > MOST_LISTED:
        raise SettingError(
            f"at most {MOST_LISTED} configurations can be enumerated, got {len(found)}. "
            "Give fewer values, or enumerate fewer methods."
        )
    return found


def finished_methods(space: Space) -> list[str]:
    """Return the methods whose configurations all come first; none if settings of training vary too."""
    if space.shared_parameters():
        return []
    return [one.kind for one in space.choices if not one.axes or one.kind in space.enumerated]


def default_parameters(space: Space, flat: bool = False) -> list[dict[str, Any]]:
    """Return the parameters of each method's own settings, for those that are drawn.

    A setting whose value is not in the space is left to the sampler, as are settings of training.
    """
    found: list[dict[str, Any]] = []
    for choice in space.choices:
        if not choice.axes or choice.kind in space.enumerated:
            continue
        drawn: dict[str, Any] = {METHOD: choice.kind} if len(space.choices) > 1 else {}
        for name, axis in choice.axes.items():
            given = getattr(choice.method, name)
            parts = parts_of(space.name(choice, name, flat), axis)
            values = given if isinstance(given, Sequence) and len(parts) > 1 else [given]
            for (part, part_axis), value in zip(parts.items(), values, strict=False):
                if _holds(part_axis, value):
                    drawn[part] = value
        found.append(drawn)
    return found


def _holds(axis: Part, value: Any) -> bool:
    """Return whether a value is on an axis."""
    if isinstance(axis, OneOf):
        return value in axis.choices
    if type(value) not in ((int,) if axis.is_whole else (int, float)):
        return False
    assert not isinstance(axis.high, str)
    return bool(axis.low <= value <= axis.high)


def _grid(space: Space, choice: Choice, flat: bool) -> list[dict[str, Any]]:
    """Return the parameters of all configurations of one method."""
    axes = space.own_parameters(choice, flat)
    for name, axis in axes.items():
        if not axis.is_finite:
            raise SettingError(
                f"enumerated methods must have lists of values, got {name} from {axis}. "
                "Write them as a list, or let the sampler draw them."
            )
    if len(space.choices) > 1:
        axes = {METHOD: OneOf((choice.kind,)), **axes}
    for name, axis in space.shared_parameters().items():
        # An axis that cannot be listed is left to the sampler.
        if axis.is_finite:
            axes[name] = axis
    values = itertools.product(*(listed(axis) for axis in axes.values()))
    return [dict(zip(axes, one, strict=True)) for one in values]
