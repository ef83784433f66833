"""Limits on what a file may take, checked before anything of that size is allocated or read.

A file states its own sizes: the shape in the head of an array, the width and height of a picture. A few bytes
can therefore ask for terabytes. Every reader compares these sizes with a limit that the user can raise.
"""

from pathlib import Path

from pluribus.errors import InputError
from pluribus.schema import shown

MOST_BYTES = 4 * 2**30
"""Memory that the numbers of one file or folder may take; the option `most_bytes` of tasks."""
MOST_PIXELS = 2**26
"""Pixels of one picture before it is reduced; the option `most_pixels` of image folders."""
SHOWN = 10
"""Names that an error message lists; a table may have 100,000 columns."""
SHOWN_LETTERS = 60
"""Characters of a cell that an error message shows."""


def check_bytes(what: str, wanted: int, most: int) -> None:
    """Raise if something would take more than `most` bytes."""
    if wanted > most:
        raise InputError(
            f"{what} must take at most {_size(most)}, got {_size(wanted)}. "
            "Make it smaller, or raise the option most_bytes."
        )


def check_file(path: Path) -> None:
    """Raise unless the path is a regular file: a pipe would block for ever, a device may never end."""
    if path.exists() and not path.is_file():
        raise InputError(
            f"{path} must be a regular file, got a folder, pipe or device. Remove or replace it."
        )


def listed(names: "list[str] | tuple[str, ...]") -> str:
    """Return the first names as text, and how many follow."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def quoted(cell: object) -> str:
    """Return a cell of a table as text in quotes, cut where it is long: a broken file may be one cell."""
    try:
        text = repr(cell)
    # Python prints no whole number of more than 4300 digits.
    except ValueError:
        return shown(cell) if type(cell) is int else f"a {type(cell).__name__} with a huge number"
    return text if len(text) <= SHOWN_LETTERS else f"{text[:SHOWN_LETTERS]}… ({len(text):,} characters)"


def _size(count: int) -> str:
    """Return a number of bytes in the largest unit that gives at least 1."""
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20)):
        if count >= 2**power:
            return f"{count / 2**power:.3g} {unit}"
    return f"{count} bytes"
