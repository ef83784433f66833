"""Configurations as numbers, for models of them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from pluribus.axes import Between, OneOf
from pluribus.search.gaussian_process import Points
from pluribus.search.space import METHOD, Space

Values = Mapping[str, Any]
Axes = Mapping[str, Between | OneOf]


@final
class Encoder:
    """Encode the configurations of a conditional space.

    Args:
        space: The space.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.shared = space.shared_parameters()
        self.axes: dict[str, Axes] = {}
        for choice in space.choices:
            self.axes[choice.kind] = space.own_parameters(choice, flat=False) | self.shared
        self.longest = max(map(count_numbers, self.axes.values()))

    def kind(self, parameters: Values) -> str:
        """Return the method of a configuration."""
        return str(parameters.get(METHOD, self.space.kinds[0]))

    def has_all(self, parameters: Values) -> bool:
        """Return whether all parameters of a configuration are known."""
        return all(name in parameters for name in self.axes[self.kind(parameters)])

    def points(self, configurations: Sequence[Values]) -> Points:
        """Return configurations as points, settings between 0 and 1."""
        count = len(configurations)
        kinds, sizes = np.zeros(count, dtype=np.int64), np.zeros(count)
        own, shared = np.zeros((count, self.longest)), np.zeros((count, count_numbers(self.shared)))
        for number, one in enumerate(configurations):
            row = places(self.axes[self.kind(one)], one)
            kinds[number], sizes[number] = self.space.kinds.index(self.kind(one)), len(row)
            own[number, : len(row)] = row
            shared[number] = places(self.shared, one)
        return Points(kinds, own, sizes, shared)


def count_numbers(axes: Axes) -> int:
    """Return how many numbers `places` gives on axes."""
    firsts = {name: axis.choices[0] if isinstance(axis, OneOf) else axis.low for name, axis in axes.items()}
    return len(places(axes, firsts))


def places(axes: Axes, parameters: Values) -> list[float]:
    """Return where the parameters of some axes lie on them, one after another."""
    found: list[float] = []
    for name, axis in axes.items():
        found += place(axis, parameters[name])
    return found


def place(axis: Between | OneOf, value: Any) -> list[float]:
    """Return where a value lies on its axis, in [0, 1]; words have a number each."""
    if isinstance(axis, OneOf):
        if all(type(choice) in (int, float) for choice in axis.choices):
            ordered = sorted(axis.choices)
            return [ordered.index(value) / max(1, len(ordered) - 1)]
        # Two words are as far apart as the ends of a range.
        return [float(choice == value) / math.sqrt(2) for choice in axis.choices]
    assert not isinstance(axis.high, str)
    low, high = axis.low, axis.high
    if axis.log:
        low, high, value = math.log(low), math.log(high), math.log(value)
    return [(value - low) / (high - low) if high > low else 0.0]
