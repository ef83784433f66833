"""Ranges of settings and arguments: declared once, checked with one form of message."""

import difflib
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from pluribus.errors import SettingError
from pluribus.schema import shown

# Limits against slips of the pen and hostile files: every value below them builds something that a machine
# of today may hold, and values above would allocate for minutes before they fail.
MOST_MEMBERS = 10_000
MOST_DRAWS = 1_000_000
MOST_CHANNELS = 1_000_000
LARGEST, LONGEST = 1e6, 80
"""The most that a scale or a factor may be, and the most letters of a value in an error."""

MOST: dict[type | None, float] = {int: 2**63 - 1, float: sys.float_info.max}
"""What torch can hold of whole and of other numbers; nothing outside is a number for it."""

KINDS: dict[type | None, tuple[str, tuple[type, ...]]] = {
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    bool: ("True or False", (bool,)),
    str: ("a string", (str,)),
}
"""By kind of a value, what it is called and which types are taken for it. True is no number."""


def nearest(word: object, words: Iterable[str]) -> str:
    """Return a hint such as ` Did you mean 'members'?`, or nothing where no word is near. Case is ignored."""
    if not isinstance(word, str):
        return ""
    known = {str(one).lower(): one for one in words}
    found = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f" Did you mean {known[found[0]]!r}?" if found else ""


def show(value: object) -> str:
    """Return the `repr` of a value, cut to one line."""
    if type(value) is int:
        return shown(value)
    try:
        text = repr(value)
    except ValueError:  # a list with a whole number of more than 4300 digits, which Python does not print
        return shown(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def invalid(name: str, expected: str, value: object, words: Iterable[str] = ()) -> SettingError:
    """Return the error for an impossible value; `words` are those that it may have been meant to be."""
    return SettingError(f"{name} must be {expected}, got {show(value)}.{nearest(value, words)}")


@dataclass(frozen=True)
class Range:
    """Values that a setting or an argument may have.

    Attributes:
        kind: int, float, bool or str; None where `choices` has them all.
        at_least: The least value.
        at_most: The greatest value; by default what torch can hold, with infinity there is no limit.
        above: All values are greater.
        below: All values are less.
        choices: The only values.
        optional: Whether None is taken too.
        remedy: What to do where the value is too small.
    """

    kind: type | None = None
    at_least: float = -math.inf
    at_most: float | None = None
    above: float = -math.inf
    below: float = math.inf
    choices: tuple[object, ...] = ()
    optional: bool = False
    remedy: str = ""

    def check(self, name: str, value: object) -> None:
        """Raise a SettingError where the value is outside."""
        if value is None and self.optional:
            return
        if self.choices:
            self._check_choice(name, value)
            return
        called, types = KINDS[self.kind]
        if type(value) not in types:
            raise invalid(name, called + " or None" * self.optional, value)
        if self.kind in (int, float):
            assert isinstance(value, int | float)
            self._check_limits(name, value)

    def _check_choice(self, name: str, value: object) -> None:
        # True equals 1, so types are compared too.
        if any(type(value) is type(choice) and value == choice for choice in self.choices):
            return
        words = [choice for choice in self.choices if isinstance(choice, str)]
        raise invalid(name, "one of " + ", ".join(map(repr, self.choices)), value, words)

    def _check_limits(self, name: str, value: float) -> None:
        # Comparisons, not math.isfinite: that raises for whole numbers beyond all floats.
        if value != value or value in (math.inf, -math.inf):
            raise invalid(name, "a finite number", value)
        if value < max(self.at_least, -MOST[self.kind]) or value <= self.above:
            error = invalid(name, self._lower, value)
            raise SettingError(f"{error} {self.remedy}" if self.remedy else str(error))
        most = MOST[self.kind] if self.at_most is None else self.at_most
        if value > most:
            raise invalid(name, f"at most {most:.15g}", value)
        if value >= self.below:
            raise invalid(name, f"below {self.below:.15g}", value)

    @property
    def _lower(self) -> str:
        if self.above > -math.inf:
            return f"above {self.above:.15g}"
        return f"at least {max(self.at_least, -MOST[self.kind]):.15g}"


def check(
    name: str,
    value: object,
    kind: type | None = None,
    *,
    at_least: float = -math.inf,
    at_most: float | None = None,
    above: float = -math.inf,
    below: float = math.inf,
    choices: Iterable[object] = (),
    optional: bool = False,
) -> None:
    """Raise a SettingError where an argument is outside its range; the words are those of `setting`."""
    # Most optional arguments are left out, and a range takes longer to make than to check.
    if value is None and optional:
        return
    Range(kind, at_least, at_most, above, below, tuple(choices), optional).check(name, value)
