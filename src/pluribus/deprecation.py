"""Old public names: they work for one more release and raise a DeprecationWarning.

CONTRIBUTING has the policy. When a release is over, delete the calls of this file that name it.
"""

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from pluribus.errors import SettingError

REMOVAL = "0.3"
"""The release in which names that are deprecated now are removed."""

P = ParamSpec("P")
R = TypeVar("R")


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Warn that `old` is now `new`; by default with the line that called the caller."""
    message = f"{old} is deprecated and will be removed in Pluribus {REMOVAL}. Use {new}."
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)


def renamed_arguments(**renamed: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that accepts keyword arguments by their old names, `old="new"`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for old, new in renamed.items():
                if old not in kwargs:
                    continue
                if new in kwargs:
                    raise SettingError(f"{new} must be given once, got {old}= too. Remove {old}=.")
                warn_renamed(f"{old}=", f"{new}=")
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate


class RenamedAttribute:
    """A class or instance attribute under its old name."""

    def __init__(self, new: str) -> None:
        self.new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self.old = name

    def __get__(self, instance: object, owner: type) -> Any:
        warn_renamed(f"{owner.__name__}.{self.old}", f"{owner.__name__}.{self.new}")
        return getattr(owner if instance is None else instance, self.new)


def adopt_renamed(child: type, renamed: Mapping[str, str]) -> None:
    """Give what a subclass defines under an old name the new name, so that its base class calls it."""
    for old, new in renamed.items():
        if old in child.__dict__ and new not in child.__dict__:
            warn_renamed(f"{child.__name__}.{old}", new, stacklevel=4)
            setattr(child, new, child.__dict__[old])


def find_renamed(module: str, names: Mapping[str, Any], renamed: Mapping[str, str], name: str) -> Any:
    """Return what a module's old name stands for now; for a module's `__getattr__`."""
    if name not in renamed:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warn_renamed(f"{module}.{name}", f"{module}.{renamed[name]}", stacklevel=4)
    return names[renamed[name]]
