"""Cells of a table, from text or Python's own values to numbers. Imports no torch.

A cell is text, a number, True or False, a date, or None. A reader turns one cell into a
number, and into NaN where it cannot be read: the caller knows whether that is an error.
"""

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np

from pluribus.data.dates import DAY

Array = np.ndarray[Any, Any]
Cells = Sequence[object]
Value = TypeVar("Value")
MISSING_WORDS = ("", "?", ".", "-", "--", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "missing")
"""Words that stand for a missing value, in lower case. Most tools write one of them, SAS a point."""
TRUE, FALSE = ("true", "yes", "y", "t"), ("false", "no", "n", "f")
WRITTEN_NUMBER = re.compile(
    r"^([-+]?)[$€£¥]?\s?((?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d+)?)\s?[$€£¥%]?$", re.ASCII
)
"""A number as people write it: 1,234.50, $12, 5 €, 45 %. Commas part thousands alone: neither 12,5 nor 0,125
is a number."""


def by_value(cells: Cells, function: Callable[[object], Value]) -> list[Value]:
    """Return what a function makes of each cell, called once for each distinct one: most columns repeat."""
    try:
        known = {cell: function(cell) for cell in set(cells)}
    except TypeError:  # lists and other cells without a hash
        return [function(cell) for cell in cells]
    return [known[cell] for cell in cells]


def find_missing(cells: Cells, words: frozenset[str]) -> Array:
    """Return where a column has no value, `[count]`."""
    if plain_numbers(cells) is not None:
        return np.zeros(len(cells), bool)
    return np.array(by_value(cells, lambda cell: is_missing(cell, words)), dtype=bool)


def is_missing(cell: object, words: frozenset[str]) -> bool:
    """Return whether a cell stands for no value: None, NaN, or one of the words."""
    if isinstance(cell, str):
        return cell.strip().lower() in words
    # pandas need not be installed; its NA compares to NA, which is neither true nor false.
    if cell is None or type(cell).__name__ == "NAType":
        return True
    try:
        # NaN, and pandas' missing date, differ from themselves.
        return bool(cell != cell)
    # An array, a tensor or a signalling NaN, which is no number to its reader either.
    except (TypeError, ValueError, ArithmeticError, RuntimeError):
        return False


def to_word(cell: object) -> str:
    """Return a cell as text; whole numbers have no point, so that 1 and 1.0 are one category."""
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    return str(cell).strip()


def to_number(cell: object) -> float:
    """Return a cell as a number, or NaN; `$1,234.50` is 1234.5, `45 %` is 45, a duration is its days.

    Python's `1_000` is no number in a table.
    """
    if isinstance(cell, timedelta):
        return cell.total_seconds() / DAY
    if isinstance(cell, str) and "_" in cell:
        return np.nan
    try:
        return float(cell)  # type: ignore[arg-type]
    # torch raises RuntimeError for a tensor without numbers, as on the device meta.
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return _written_number(cell)


def _written_number(cell: object) -> float:
    """Return a number with commas between thousands, or a sign of a currency or percent, or NaN."""
    found = WRITTEN_NUMBER.match(cell.strip()) if isinstance(cell, str) else None
    return float((found[1] + found[2]).replace(",", "")) if found else np.nan


def to_flag(cell: object) -> float:
    """Return 1 for true and yes, 0 for false and no, else NaN."""
    word = str(cell).strip().lower()
    if word in TRUE:
        return 1.0
    return 0.0 if word in FALSE else np.nan


def read_cells(cells: Cells, reader: Callable[[object], float]) -> Array:
    """Return every cell as a number, float64 `[count]`; NaN where it cannot be read."""
    plain = plain_numbers(cells) if reader is to_number else None
    if plain is not None:
        return plain
    return np.array(by_value(cells, reader), dtype=np.float64)


def plain_numbers(cells: Cells) -> Array | None:
    """Return the numbers of a column that holds nothing else, read at once; None for other columns.

    Tables may have 100,000 columns, most often of plain numbers: calls for each cell would take minutes.
    """
    if not len(cells) or isinstance(cells[0], bool):
        return None
    try:
        values = np.array(cells, dtype=np.float64)
    # torch raises RuntimeError for a tensor that needs a gradient.
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    plain = values.ndim == 1 and bool(np.isfinite(values).all())
    return values if plain and not _has_underscore(cells) else None


def _has_underscore(cells: Cells) -> bool:
    """Return whether text among the cells has an underscore."""
    try:
        # One search in all of the text: a file has millions of cells.
        return "_" in "".join(cells)  # type: ignore[arg-type]
    except TypeError:
        return any(isinstance(cell, str) and "_" in cell for cell in cells)
