"""Cells of a table, from text or Python's own values to numbers. Imports no torch.

A cell is text, a number, True or False, a date, or None. A reader turns one cell into a
number, and into NaN where it cannot be read: the caller knows whether that is an error.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import Any, TypeVar

import numpy as np

Array = np.ndarray[Any, Any]
Cells = Sequence[object]
Value = TypeVar("Value")
MISSING_WORDS = ("", "?", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "missing")
"""Words that stand for a missing value, in lower case; most tools write one of them."""
TRUE, FALSE = ("true", "yes", "y", "t"), ("false", "no", "n", "f")
DOTTED_DATE = re.compile(r"^(\d{1,2})\.(\d{1,2})\.(\d{4})(?!\d)")
AMBIGUOUS_DATE = re.compile(r"^\d{1,2}([/-])\d{1,2}\1(\d{4}|\d{2})(?!\d)")
DAY = 86_400.0
"""Seconds."""


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
    """Return a cell as a number, or NaN. Python's `1_000` is no number in a table."""
    if isinstance(cell, str) and "_" in cell:
        return np.nan
    try:
        return float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return np.nan


def to_flag(cell: object) -> float:
    """Return 1 for true and yes, 0 for false and no, else NaN."""
    word = str(cell).strip().lower()
    if word in TRUE:
        return 1.0
    return 0.0 if word in FALSE else np.nan


def to_days(cell: object) -> float:
    """Return days since 1970 of a date such as 2024-03-01, 2024/03/01 12:30 or 1.3.2024, or NaN.

    Other orders are not read: 01/02/2024 is January in one country and February in another. With dots the
    day comes first in all of them.
    """
    try:
        if isinstance(cell, datetime):
            moment = cell
        elif isinstance(cell, date):
            moment = datetime(cell.year, cell.month, cell.day)
        else:
            moment = datetime.fromisoformat(_year_first(str(cell)))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp() / DAY
    # The missing date of pandas is a datetime that has no time.
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _year_first(text: str) -> str:
    """Return a date with dashes, the year first; raise ValueError where the order is not certain."""
    text = DOTTED_DATE.sub(lambda found: f"{found[3]}-{found[2]:0>2}-{found[1]:0>2}", text.strip())
    text = text.replace("/", "-")
    if not text[:4].isdigit() or text[4:5] != "-":
        raise ValueError(text)
    return text


def is_ambiguous_date(cell: object) -> bool:
    """Return whether a cell is a date that may begin with the day or the month."""
    return bool(AMBIGUOUS_DATE.match(str(cell).strip()))


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
    underscore = any(isinstance(cell, str) and "_" in cell for cell in cells)
    return values if plain and not underscore else None


def to_date(days: float) -> str:
    """Return the date of a number of days since 1970, as text."""
    return str(np.datetime64(round(days), "D"))
