"""Schemas: the types and ranges that values of untrusted files must have.

A schema is a small tree of values, checked before anything else reads what a file holds:

    RUN = Fields({"task": Text(), "options": Items(Text())}, optional={"seed": Whole(least=0)})
    RUN.check({"task": 3, "options": []}, "")      raises Mismatch: field task must be a text, got 3

Booleans are no numbers, although Python counts them as integers.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

SHOWN = 60
"""Characters of a wrong value in a message; a hostile file must not fill the terminal."""


class Mismatch(ValueError):
    """Raised if a value does not match its schema. The message names the field; readers add the file."""


class Schema(ABC):
    """Interface of a schema: the values that one place of a file may hold."""

    @abstractmethod
    def check(self, value: object, place: str) -> None:
        """Raise `Mismatch` unless `value` matches; `place` is its dotted path in the file."""


def mismatch(place: str, expected: str, value: object) -> Mismatch:
    """Return the error for a value that was expected to be something else."""
    # The root of a document has no name.
    where = f"field {place}" if place else "the content"
    return Mismatch(f"{where} must be {expected}, got {shown(value)}")


def shown(value: object) -> str:
    """Return a short description of a value; long ones are cut."""
    if isinstance(value, Mapping):
        return f"an object with {len(value)} fields"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    # Python refuses to print integers of more than 4300 digits.
    if type(value) is int and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


@dataclass(frozen=True)
class Anything(Schema):
    """Accept any value; its reader checks it."""

    def check(self, value: object, place: str) -> None:
        return


@dataclass(frozen=True)
class Text(Schema):
    """Accept a string of limited length that matches a pattern as a whole."""

    most: int = 100_000
    pattern: str = ""
    name: str = "a text"

    def check(self, value: object, place: str) -> None:
        if type(value) is not str or len(value) > self.most:
            raise mismatch(place, f"{self.name} of at most {self.most} characters", value)
        if self.pattern and not re.fullmatch(self.pattern, value):
            raise mismatch(place, self.name, value)


@dataclass(frozen=True)
class Whole(Schema):
    """Accept an integer in a range."""

    least: int = 0
    # Torch's sizes and seeds are signed 64-bit integers; a larger number cannot be meant.
    most: int = (1 << 63) - 1

    def check(self, value: object, place: str) -> None:
        if type(value) is not int or not self.least <= value <= self.most:
            raise mismatch(place, f"a whole number from {self.least} to {self.most}", value)


@dataclass(frozen=True)
class Number(Schema):
    """Accept an integer or float; NaN and infinity only if `finite` is False."""

    finite: bool = False

    def check(self, value: object, place: str) -> None:
        if type(value) not in (int, float):
            raise mismatch(place, "a number", value)
        # An integer beyond all floats would raise OverflowError wherever it meets one.
        if type(value) is int and value.bit_length() > 1023:
            raise mismatch(place, "a number that a float can hold", value)
        if self.finite and not math.isfinite(value):  # type: ignore[arg-type]
            raise mismatch(place, "a finite number", value)


@dataclass(frozen=True)
class Flag(Schema):
    """Accept true or false."""

    def check(self, value: object, place: str) -> None:
        if type(value) is not bool:
            raise mismatch(place, "true or false", value)


@dataclass(frozen=True)
class Optional(Schema):
    """Accept null, or a value of a schema."""

    of: Schema

    def check(self, value: object, place: str) -> None:
        if value is not None:
            self.of.check(value, place)


@dataclass(frozen=True)
class Either(Schema):
    """Accept a value that matches at least one of several schemas."""

    of: tuple[Schema, ...]

    def check(self, value: object, place: str) -> None:
        reasons = []
        for schema in self.of:
            try:
                schema.check(value, place)
            except Mismatch as error:
                reasons.append(str(error))
            else:
                return
        raise Mismatch(" and ".join(reasons))


@dataclass(frozen=True)
class Items(Schema):
    """Accept a list of limited length whose entries all match one schema."""

    of: Schema
    most: int = 10_000_000

    def check(self, value: object, place: str) -> None:
        if not isinstance(value, list | tuple) or len(value) > self.most:
            raise mismatch(place, f"a list of at most {self.most} entries", value)
        for position, entry in enumerate(value):
            self.of.check(entry, f"{place}[{position}]")


@dataclass(frozen=True)
class Named(Schema):
    """Accept an object with any names whose values all match one schema."""

    of: Schema

    def check(self, value: object, place: str) -> None:
        check_object(value, place)
        for name, entry in value.items():  # type: ignore[attr-defined]
            self.of.check(entry, joined(place, name))


@dataclass(frozen=True)
class Fields(Schema):
    """Accept an object with fields of given names, and unknown ones only if `others` is True."""

    required: Mapping[str, Schema] = field(default_factory=dict)
    optional: Mapping[str, Schema] = field(default_factory=dict)
    others: bool = False

    def check(self, value: object, place: str) -> None:
        check_object(value, place)
        for name in self.required:
            if name not in value:  # type: ignore[operator]
                raise Mismatch(f"field {joined(place, name)} is missing")
        known = {**self.required, **self.optional}
        for name, entry in value.items():  # type: ignore[attr-defined]
            if name in known:
                known[name].check(entry, joined(place, name))
                continue
            # Files of later versions may have more fields, where a schema allows it.
            if not self.others:
                raise Mismatch(f"field {joined(place, name)} is unknown, expected {', '.join(known)}")


def check_object(value: object, place: str) -> None:
    """Raise `Mismatch` unless `value` is an object whose names are texts."""
    if not isinstance(value, Mapping):
        raise mismatch(place, "an object", value)
    for name in value:
        if type(name) is not str:
            raise mismatch(place, "an object whose names are texts", name)


def joined(place: str, name: str) -> str:
    """Return the dotted path of a field, cut where a name is long."""
    short = name if len(name) <= SHOWN else f"{name[:SHOWN]}…"
    return f"{place}.{short}" if place else short
