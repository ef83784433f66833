"""Width of a network as an axis: half, as it is, and double."""

import inspect
from typing import Any

from pluribus.axes import OneOf
from pluribus.errors import SettingError


def width_axis(build: Any, network: str) -> OneOf:
    """Return half, one and two times the width that a network has by default.

    Args:
        build: Makes the network; its parameter `width` has a default. A `Build` of the command line has it in
            `default_width`.
        network: Its name, for the error.

    Raises:
        SettingError: there is no such parameter.
    """
    usual = getattr(build, "default_width", None) or _default(build)
    if not isinstance(usual, int) or usual < 1:
        raise SettingError(
            f"the width of {network} can vary only if it is made by a function with a parameter `width` and "
            "a whole number as its default, got none. Write the space by hand, or leave width out."
        )
    return OneOf(tuple(sorted({max(1, usual // 2), usual, 2 * usual})))


def _default(build: Any) -> Any:
    try:
        parameter = inspect.signature(build).parameters.get("width")
    # Functions written in C have no signature.
    except (TypeError, ValueError):
        return None
    return None if parameter is None else parameter.default
