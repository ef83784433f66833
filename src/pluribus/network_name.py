"""Names of networks with their sizes: `cnn(width=8)`, `mypkg.nets:build(width=8, depth=2)`."""

from collections.abc import Mapping
from typing import Any

from pluribus.errors import SettingError
from pluribus.method_text import parse_options, split_outside_brackets
from pluribus.ranges import check, show

SIZES = ("width", "depth")
"""Arguments of networks that a search may vary, and that a name may have: `cnn(width=8)`."""
LARGEST = 4096


def split_sizes(name: str) -> tuple[str, dict[str, int]]:
    """Return the name of a network and its sizes, `cnn(width=8)` as `cnn` and the width 8.

    Raises:
        SettingError: something else stands in brackets, or a size is out of range.
    """
    function, opened, given = name.partition("(")
    if not opened:
        return name, {}
    values = parse_options(split_outside_brackets(given.removesuffix(")")))
    if not values or not set(values) <= set(SIZES) or not given.endswith(")"):
        raise SettingError(
            f"a network is written name, name(width=8) or name(width=8, depth=2), got {show(name)}."
        )
    # Files of runs hold such names too: no network of this size fits into memory.
    for size, value in values.items():
        check(size, value, int, at_least=1, at_most=LARGEST)
    return function, values


def with_sizes(name: str, sizes: Mapping[str, Any]) -> str:
    """Return the name of a network of other sizes, `cnn(width=8)` of width 4 as `cnn(width=4)`."""
    if not sizes:
        return name
    try:
        function, given = split_sizes(name)
    # In Python a network may have any name.
    except SettingError:
        function, given = name, {}
    return f"{function}({', '.join(f'{size}={value}' for size, value in {**given, **sizes}.items())})"
