"""Settings are values: frozen dataclasses that compare, print, and go to and from a plain dict."""

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from pluribus.errors import SettingError
from pluribus.schema import shown

INFINITE = "inf"
"""Infinity in files and on the command line."""


def snake_case(name: str) -> str:
    """`BatchEnsemble` to `batch_ensemble`, `MCDropout` to `mc_dropout`, `SAE` to `sae`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def nearest(word: object, words: Iterable[str]) -> str:
    """A hint such as ` Did you mean 'members'?`, whatever the case, or nothing where no word is near."""
    known = {str(one).lower(): one for one in words}
    found = difflib.get_close_matches(str(word).lower(), list(known), n=1)
    return f" Did you mean {known[found[0]]!r}?" if found else ""


@dataclass(frozen=True)
class Settings:
    """Parent of all values that say how something is done; its children are abstract or final.

    A final child is a frozen dataclass with a class-level `version`, raised whenever the meaning of
    its settings changes. Its name in files and on the command line is its class name in snake case.
    """

    version: ClassVar[int] = 1

    @classmethod
    def kind(cls) -> str:
        """The name in files and on the command line."""
        return snake_case(cls.__name__)

    @classmethod
    def known(cls) -> dict[str, type[Self]]:
        """All final children by their kind."""
        found: dict[str, type[Self]] = {}
        for child in cls.__subclasses__():
            found |= child.known() or {child.kind(): child}
        return found

    def to_dict(self) -> dict[str, Any]:
        """A plain dict of the kind, the version and every setting; infinity, which JSON lacks, is a word."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        settings = {name: INFINITE if value == math.inf else value for name, value in values.items()}
        return {"kind": self.kind(), "version": self.version, **settings}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The settings that `to_dict` wrote; unknown keys and later versions are refused."""
        values = {name: math.inf if value == INFINITE else value for name, value in values.items()}
        kind, version = values.pop("kind", None), values.pop("version", None)
        known = cls.known() or {cls.kind(): cls}
        if not isinstance(kind, str) or kind not in known:
            raise SettingError(
                f"kind must be one of {', '.join(sorted(known))}, however: kind={kind!r}."
                + nearest(kind, known)
            )
        chosen = known[kind]
        if type(version) is not int or not 1 <= version <= chosen.version:
            raise SettingError(
                f"{chosen.__name__} reads settings of version 1 to {chosen.version}, "
                f"however: version={version!r}. Install a later Pluribus to read newer settings."
            )
        values = chosen.upgrade(values, version)
        chosen.check_names(values)
        return chosen(**values)

    @classmethod
    def upgrade(cls, values: dict[str, Any], version: int) -> dict[str, Any]:
        """Return settings that an earlier `version` wrote with the names and meanings of the present one."""
        return values

    @classmethod
    def check_names(cls, names: Iterable[str]) -> None:
        """Raises for a name that is not a setting."""
        own = [field.name for field in fields(cls)]
        for name in names:
            if name not in own:
                raise SettingError(
                    f"settings of {cls.__name__} are {', '.join(own) or 'none'}, however: {name!r}."
                    + nearest(name, own)
                )


MOST = dict.fromkeys(("members", "options", "inputs", "draws", "train_draws"), 1_000_000)
"""Greatest counts by the name of the setting: more cannot be meant, and would only hang or exhaust memory."""
MOST_OTHERS = (1 << 63) - 1
"""Greatest whole number of all other settings, that of torch's sizes."""


def refuse(name: str, expected: str, value: object, words: Iterable[str] = ()) -> SettingError:
    """The error for an impossible value; `words` are those that it may have been meant to be."""
    # Python refuses to print integers of more than 4300 digits.
    came = shown(value) if type(value) is int else repr(value)
    hint = nearest(value, words) if words else ""
    return SettingError(f"{name} must be {expected}, however: {name}={came}.{hint}")


def whole(name: str, value: object, least: int = 1, most: float = math.inf) -> None:
    """Checks for an integer from `least` to `most`."""
    most = min(most, MOST.get(name, MOST_OTHERS))
    if name == "seed":
        most = math.inf  # any seed is folded into what torch takes
    if type(value) is not int or not least <= value <= most:
        limits = f"at least {least}" + f" and at most {most}" * (most < MOST_OTHERS)
        raise refuse(name, f"a whole number, {limits}", value)


def number(name: str, value: object, least: float = -math.inf, below: float = math.inf) -> None:
    """Checks for a finite number in `[least, below)`."""
    if type(value) not in (int, float) or not _fits(value, least, below):  # type: ignore[arg-type]
        limits = [f"at least {least:g}"] * (least > -math.inf) + [f"below {below:g}"] * (below < math.inf)
        raise refuse(name, "a number" + ", " * bool(limits) + " and ".join(limits), value)


def _fits(value: float, least: float, below: float) -> bool:
    try:
        return math.isfinite(value) and least <= value < below
    except OverflowError:  # a whole number beyond all floats
        return False


def flag(name: str, value: object) -> None:
    """Checks for True or False."""
    if type(value) is not bool:
        raise refuse(name, "True or False", value)


def positive(name: str, value: object) -> None:
    """Checks for a finite number above 0."""
    number(name, value)
    if value <= 0:  # type: ignore[operator]
        raise refuse(name, "a number above 0", value)


def share(name: str, value: object) -> None:
    """Checks for a number in [0, 1]."""
    if type(value) not in (int, float) or not 0 <= value <= 1:  # type: ignore[operator]
        raise refuse(name, "a number from 0 to 1", value)


def one_of(name: str, value: object, choices: Iterable[object]) -> None:
    """Checks for one of the choices."""
    choices = list(choices)
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise refuse(name, "one of " + ", ".join(map(repr, choices)), value)
