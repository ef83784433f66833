"""Cells for spreadsheets: no text in a CSV file is run as a formula."""

from typing import Any

# Excel and LibreOffice run cells that begin so, although a CSV file has no formulas (CWE-1236). Wide forms
# count in editions for East Asia. White space before the sign does not help.
SIGNS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
CONTROLS = ("\t", "\r", "\n", "\0")


def safe_cell(value: Any) -> Any:
    """Return a cell that spreadsheets show as it is; a text that looks like a formula gets an apostrophe."""
    if not isinstance(value, str):
        return value
    starts = value.startswith(CONTROLS) or value.strip().startswith(SIGNS)
    if starts and not _is_number(value):
        return f"'{value}"
    return value


def _is_number(text: str) -> bool:
    """Return whether a text such as `-1`, the name of a class, is a plain number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
