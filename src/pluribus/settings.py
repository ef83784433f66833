"""Settings are values: frozen dataclasses that compare, print, and go to and from a plain dict.

A field declares its range once, and `Settings` checks it:

    members: int = setting(4, at_least=1, at_most=MOST_MEMBERS)

`ranges.check` has the same words for arguments of functions.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

from pluribus.axes import Axis
from pluribus.errors import SettingError
from pluribus.ranges import Range, invalid, nearest, show

T = TypeVar("T")

INFINITE = "inf"
"""Infinity in files and on the command line."""
SEARCH = "search"
"""Entry of a field that holds its axis."""


def snake_case(name: str) -> str:
    """Turn `BatchEnsemble` into `batch_ensemble`, `MCDropout` into `mc_dropout`, `SAE` into `sae`."""
    # Words begin with a capital before a small letter, so that acronyms of both, as LoRA, stay whole; one at
    # the end begins after a word of at least three letters.
    return re.sub(r"(?<=[A-Za-z0-9])(?=[A-Z][a-z])|(?<=[a-z0-9]{3})(?=[A-Z])", "_", name).lower()


def setting(
    default: T,
    *,
    kind: type | None = None,
    at_least: float = -math.inf,
    at_most: float | None = None,
    above: float = -math.inf,
    below: float = math.inf,
    choices: Iterable[object] = (),
    remedy: str = "",
    search: Axis | None = None,
) -> T:
    """Declare a field of `Settings` with its range; the kind of value is that of the default.

    Args:
        default: The value where none is given. None allows None, and needs a `kind` or `choices`.
        kind: int, float, bool or str.
        at_least: The least value.
        at_most: The greatest value; by default what torch can hold, with infinity there is no limit.
        above: All values are greater.
        below: All values are less.
        choices: The only values.
        remedy: What to do where the value is too small, a sentence for the error.
        search: How a search may vary it; None where it may not.
    """
    kind = type(default) if kind is None and default is not None else kind
    options = tuple(choices)
    allowed = Range(kind, at_least, at_most, above, below, options, default is None, remedy)
    declared: T = field(default=default, metadata={"range": allowed, SEARCH: search})
    return declared


def searched(axis: Axis) -> dict[str, Axis]:
    """Return the metadata of a field that a search may vary, and whose range is checked elsewhere."""
    return {SEARCH: axis}


@dataclass(frozen=True)
class Settings:
    """Parent of all values that say how something is done; its children are abstract or final.

    A final child is a frozen dataclass with a class-level `version`, raised whenever the meaning of
    its settings changes. Its name in files and on the command line is its class name in snake case.
    """

    version: ClassVar[int] = 1
    added: ClassVar[Mapping[int, Mapping[str, Any]]] = MappingProxyType({})
    """By version, the settings that it added, with values that do what the version before did."""

    def __post_init__(self) -> None:
        """Check the declared ranges. Children that override it, for what crosses fields, call it first."""
        for one in fields(self):
            if "range" in one.metadata:
                one.metadata["range"].check(one.name, getattr(self, one.name))

    @classmethod
    def kind(cls) -> str:
        """Return the name in files and on the command line."""
        return snake_case(cls.__name__)

    @classmethod
    def known(cls) -> dict[str, type[Self]]:
        """Return all final children by their kind."""
        found: dict[str, type[Self]] = {}
        for child in cls.__subclasses__():
            found |= child.known() or {child.kind(): child}
        return found

    @classmethod
    def axes(cls) -> dict[str, Axis]:
        """Return how a search may vary each setting; settings that stay as they are have no axis."""
        declared = {one.name: one.metadata.get(SEARCH) for one in fields(cls)}
        return {name: axis for name, axis in declared.items() if axis is not None}

    def to_dict(self) -> dict[str, Any]:
        """Return a plain dict of kind, version and every setting; infinity, which JSON lacks, is a word."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        settings = {name: INFINITE if value == math.inf else value for name, value in values.items()}
        return {"kind": self.kind(), "version": self.version, **settings}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the settings that `to_dict` wrote; raise for unknown keys and later versions."""
        # Values come from files too.
        if not isinstance(values, Mapping):
            raise invalid("settings", "an object with a kind and a version", values)
        values = {name: math.inf if value == INFINITE else value for name, value in values.items()}
        kind, version = values.pop("kind", None), values.pop("version", None)
        known = cls.known() or {cls.kind(): cls}
        if not isinstance(kind, str) or kind not in known:
            raise SettingError(
                f"kind must be one of {', '.join(sorted(known))}, got {show(kind)}." + nearest(kind, known)
            )
        chosen = known[kind]
        if type(version) is not int or not 1 <= version <= chosen.version:
            raise SettingError(
                f"{chosen.__name__} reads settings of version 1 to {chosen.version}, "
                f"got version {show(version)}. Install a later Pluribus to read newer settings."
            )
        values = chosen.upgrade(values, version)
        chosen.check_names(values)
        return chosen(**values)

    @classmethod
    def upgrade(cls, values: dict[str, Any], version: int) -> dict[str, Any]:
        """Return settings that an earlier `version` wrote with the names and meanings of the present one."""
        for later in range(version + 1, cls.version + 1):
            values = {**cls.added.get(later, {}), **values}
        return values

    @classmethod
    def check_names(cls, names: Iterable[str]) -> None:
        """Raise for a name that is not a setting."""
        own = [one.name for one in fields(cls)]
        for name in names:
            if name not in own:
                raise SettingError(
                    f"settings of {cls.__name__} are {', '.join(own) or 'none'}, got {show(name)}."
                    + nearest(name, own)
                )
