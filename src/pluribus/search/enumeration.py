"""Enumerate configurations: those of methods without axes, and of methods that a search tries wholly."""

import itertools
from typing import Any

from pluribus.axes import OneOf, listed
from pluribus.errors import SettingError
from pluribus.search.space import METHOD, Choice, Space

MOST_LISTED = 1000
"""Most configurations that are enumerated."""


def first_parameters(space: Space, flat: bool = False) -> list[dict[str, Any]]:
    """Return the parameters of all configurations of methods that are enumerated, or have no axes.

    Raises:
        SettingError: there are too many, or an axis cannot be listed.
    """
    found: list[dict[str, Any]] = []
    for choice in space.choices:
        if choice.axes and choice.kind not in space.enumerated:
            continue
        found += _grid(space, choice, flat)
    if len(found) > MOST_LISTED:
        raise SettingError(
            f"at most {MOST_LISTED} configurations can be enumerated, got {len(found)}. "
            "Give fewer values, or enumerate fewer methods."
        )
    return found


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
