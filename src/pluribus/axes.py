"""Axes: how a search may vary a setting. They are declared in the field, next to the setting's range.

    members: int = setting(4, at_least=1, search=Between(2, 8))
    rate: float = setting(0.1, at_least=0, below=1, search=Between(0.01, 0.5, log=True))

In files and dicts written by hand an axis is a list of values, or its ends:

    {"members": [2, 4, 8], "rate": {"low": 0.01, "high": 0.5, "log": True}}
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pluribus.errors import SettingError
from pluribus.ranges import check, invalid

DEPTHS = "depths"
"""Upper end that stands for the number of exits which a network can have."""


class Axis(ABC):
    """Values that a search may give to a setting."""

    @abstractmethod
    def to_json(self) -> Any:
        """Return the axis as `read_axis` takes it."""

    @property
    @abstractmethod
    def parts(self) -> "dict[str, Between | OneOf]":
        """Return the axes of its numbers by the suffix of their names; most have one, without a suffix."""

    @abstractmethod
    def value(self, drawn: Sequence[Any]) -> Any:
        """Return the value of the setting from those that were drawn for its parts."""

    @property
    def is_finite(self) -> bool:
        """Return whether all values can be listed."""
        return all(isinstance(part, OneOf) or part.is_whole for part in self.parts.values())


@dataclass(frozen=True)
class Between(Axis):
    """Numbers from `low` to `high`, both included; whole if both ends are.

    Args:
        low: The least value.
        high: The greatest value; "depths" is the number of exits of the network.
        log: Draw the logarithm evenly.
    """

    low: float
    high: float | str
    log: bool = False

    def __post_init__(self) -> None:
        if self.high == DEPTHS:
            return
        for name, value in (("low", self.low), ("high", self.high)):
            if type(value) not in (int, float):
                raise invalid(f"{name} of an axis", "a number", value)
        check("high of an axis", float(self.high), float, at_least=self.low)
        check("log of an axis", self.log, bool)
        if self.log and self.low <= 0:
            raise invalid("low of a logarithmic axis", "above 0", self.low)

    @property
    def is_whole(self) -> bool:
        """Return whether all values are whole numbers."""
        return type(self.low) is int and (type(self.high) is int or self.high == DEPTHS)

    @property
    def parts(self) -> "dict[str, Between | OneOf]":
        return {"": self}

    def value(self, drawn: Sequence[Any]) -> Any:
        return drawn[0]

    def to_json(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "log": self.log}

    def __str__(self) -> str:
        high = self.high if isinstance(self.high, str) else f"{self.high:g}"
        return f"{self.low:g} to {high}{' (log)' if self.log else ''}"


@dataclass(frozen=True)
class OneOf(Axis):
    """One of several values: numbers, words, True, False or None."""

    choices: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.choices:
            raise invalid("choices of an axis", "at least one", self.choices)
        for choice in self.choices:
            if not isinstance(choice, str | int | float | bool | None):
                raise invalid("choices of an axis", "numbers, words, True, False or None", choice)

    @property
    def parts(self) -> "dict[str, Between | OneOf]":
        return {"": self}

    def value(self, drawn: Sequence[Any]) -> Any:
        return drawn[0]

    def to_json(self) -> list[Any]:
        return list(self.choices)

    def __str__(self) -> str:
        return "one of " + ", ".join(map(str, self.choices))


@dataclass(frozen=True)
class Ends(Axis):
    """A pair of numbers, for the start and for the end of training, each on its own axis."""

    start: Between | OneOf
    end: Between | OneOf

    @property
    def parts(self) -> "dict[str, Between | OneOf]":
        return {".start": self.start, ".end": self.end}

    def value(self, drawn: Sequence[Any]) -> tuple[Any, Any]:
        start, end = drawn
        return start, end

    def to_json(self) -> dict[str, Any]:
        return {"start": self.start.to_json(), "end": self.end.to_json()}

    def __str__(self) -> str:
        return f"start {self.start}, end {self.end}"


def listed(axis: Between | OneOf) -> list[Any]:
    """Return all values of an axis that has few: choices, or whole numbers."""
    if isinstance(axis, OneOf):
        return list(axis.choices)
    assert axis.is_whole
    assert isinstance(axis.high, int)
    return list(range(int(axis.low), axis.high + 1))


def read_axis(name: str, value: Any) -> Axis:
    """Return the axis that a dict or file describes; `name` is for errors.

    Raises:
        SettingError: it describes none.

    >>> read_axis("members", [2, 4])
    OneOf(choices=(2, 4))
    >>> print(read_axis("rate", {"low": 0.01, "high": 0.5, "log": True}))
    0.01 to 0.5 (log)
    """
    if isinstance(value, Axis):
        return value
    try:
        if isinstance(value, list | tuple):
            return OneOf(tuple(value))
        if isinstance(value, Mapping) and set(value) == {"start", "end"}:
            return _read_ends(name, value)
        if isinstance(value, Mapping) and {"low", "high"} <= set(value) <= {"low", "high", "log"}:
            return Between(**value)
    except SettingError as error:
        raise SettingError(f"{name}: {error}") from error
    raise invalid(
        f"the axis of {name}", "a list of values or a dict of low, high and log, or of start and end", value
    )


def _read_ends(name: str, value: Mapping[str, Any]) -> Ends:
    start, end = (read_axis(f"{name}.{part}", value[part]) for part in ("start", "end"))
    if isinstance(start, Ends) or isinstance(end, Ends):
        raise invalid(f"the ends of {name}", "numbers", value)
    assert isinstance(start, Between | OneOf)
    assert isinstance(end, Between | OneOf)
    return Ends(start, end)
