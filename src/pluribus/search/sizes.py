"""Sizes of a network as axes: its width and its depth, each half, as it is, and double."""

import inspect
from typing import Any

from pluribus.axes import OneOf
from pluribus.errors import SettingError
from pluribus.network_name import SIZES

__all__ = ["SIZES", "size_axis"]


def size_axis(build: Any, network: str, name: str) -> OneOf:
    """Return half, one and two times the size that a network has by default.

    Args:
        build: Makes the network; its parameter of this name has a default. A `Build` of the command line has
            it in `default_size`.
        network: Its name, for the error.
        name: `width` or `depth`.

    Raises:
        SettingError: there is no such parameter.
    """
    found = getattr(build, "default_size", None)
    usual = found(name) if callable(found) else _default(build, name)
    if not isinstance(usual, int) or usual < 1:
        raise SettingError(
            f"the {name} of {network} can vary only if it is made by a function with a parameter `{name}` "
            f"and a whole number as its default, got none. Write the space by hand, or leave {name} out."
        )
    return OneOf(tuple(sorted({max(1, usual // 2), usual, 2 * usual})))


def _default(build: Any, name: str) -> Any:
    try:
        parameter = inspect.signature(build).parameters.get(name)
    # Functions written in C have no signature.
    except (TypeError, ValueError):
        return None
    return None if parameter is None else parameter.default
