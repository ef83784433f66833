"""The delimiter that a CSV file has, and decimal commas where it is a semicolon. Imports no torch."""

import csv
import re
from collections.abc import Sequence

OTHER_DELIMITERS = ";\t|"
"""Tried where the given delimiter does not part the header."""
DECIMAL_COMMA = re.compile(r"^\s*([-+]?\d+),(\d+)\s*$", re.ASCII)


def actual_delimiter(header: str, given: str) -> str:
    """Return the delimiter of a file: the given one, or another if only that one parts the header."""
    for delimiter in given + OTHER_DELIMITERS:
        if _parts(header, delimiter) > 1:
            return delimiter
    return given


def _parts(header: str, delimiter: str) -> int:
    """Return the number of cells of a header."""
    try:
        return len(next(csv.reader([header], delimiter=delimiter), []))
    # A cell that is too long; the reader of the file raises it again with the number of the line.
    except csv.Error:
        return 0


def with_points(row: Sequence[str]) -> list[str]:
    """Return cells with points for decimal commas."""
    return [DECIMAL_COMMA.sub(r"\1.\2", cell) if "," in cell else cell for cell in row]
