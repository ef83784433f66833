"""Dates in cells of a table, as days since 1970. Imports no torch."""

import re
from datetime import UTC, date, datetime

import numpy as np

DOTTED_DATE = re.compile(r"^(\d{1,2})\.(\d{1,2})\.(\d{4})(?!\d)")
AMBIGUOUS_DATE = re.compile(r"^\d{1,2}([/-])\d{1,2}\1(\d{4}|\d{2})(?!\d)")
DAY = 86_400.0
"""Seconds."""


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


def to_date(days: float) -> str:
    """Return the date of a number of days since 1970, as text."""
    return str(np.datetime64(round(days), "D"))
