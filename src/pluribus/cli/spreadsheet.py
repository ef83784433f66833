"""Write tables for spreadsheets: CSV files in which no text is run as a formula."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pluribus.errors import SettingError

# Excel and LibreOffice run cells that begin so, although a CSV file has no formulas (CWE-1236).
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_table(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns of equal length as CSV, with their names in the first line.

    Raises:
        SettingError: the file cannot be written.
    """
    rows = zip(*columns.values(), strict=True)
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(map(safe_cell, columns))
            for row in rows:
                writer.writerow(map(safe_cell, row))
    except OSError as error:
        raise SettingError(
            f"--out must be a file that can be written, got {path}: {error.strerror}. Choose another."
        ) from error


def safe_cell(value: Any) -> Any:
    """Return a cell that spreadsheets show as it is; a text that looks like a formula gets an apostrophe."""
    if not isinstance(value, str):
        return value
    if value.startswith(FORMULA) and not _is_number(value):
        return f"'{value}"
    return value


def _is_number(text: str) -> bool:
    """Return whether a text such as `-1`, the name of a class, is a plain number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
