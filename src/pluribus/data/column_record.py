"""The columns of a table as a JSON value, and back; every field is checked, because files are not trusted."""

import math
from dataclasses import asdict, fields
from typing import Any

from pluribus.data.columns import KINDS, Column, Columns
from pluribus.errors import CheckpointError

VERSION = 1
WORDS = ("name", "kind", "note")
NUMBERS = ("mean", "deviation", "low", "high", "fill")


def columns_to_dict(columns: Columns) -> dict[str, Any]:
    """Return a value that JSON can hold."""
    rows = [asdict(column) | {"categories": list(column.categories)} for column in columns]
    return {"version": VERSION, "missing_words": list(columns.missing_words), "columns": rows}


def columns_from_dict(values: object) -> Columns:
    """Return the columns that `columns_to_dict` wrote; raise CheckpointError for anything else."""
    if not isinstance(values, dict) or values.get("version") != VERSION:
        raise CheckpointError(
            f"columns must be a record of version {VERSION}, got another value. Train again."
        )
    words, rows = values.get("missing_words"), values.get("columns")
    if not isinstance(words, list) or not isinstance(rows, list):
        raise CheckpointError("columns must have missing_words and a list of columns. Train again.")
    _check_words("missing_words", words)
    columns = Columns(tuple(_column(row) for row in rows), tuple(words))
    _check_words("names of columns", [column.name for column in columns])
    if not columns.features:
        raise CheckpointError("a column must be used, got only dropped ones. Train again.")
    return columns


def _column(row: object) -> Column:
    """Return a column of a record."""
    expected = {field.name for field in fields(Column)}
    if not isinstance(row, dict) or row.keys() != expected:
        raise CheckpointError(f"a column must have {', '.join(sorted(expected))}. Train again.")
    for name in WORDS:
        if not isinstance(row[name], str):
            raise CheckpointError(f"{name} of a column must be a word, got {row[name]!r}. Train again.")
    for name in NUMBERS:
        _check_number(f"{name} of column {row['name']!r}", row[name])
    if type(row["missing"]) is not int or row["missing"] < 0:
        raise CheckpointError(f"missing of column {row['name']!r} must be a count. Train again.")
    if not isinstance(row["categories"], list):
        raise CheckpointError(f"categories of column {row['name']!r} must be a list. Train again.")
    _check_words(f"categories of column {row['name']!r}", row["categories"])
    if row["kind"] not in KINDS or row["deviation"] <= 0:
        raise CheckpointError(
            f"column {row['name']!r} must have a known kind and a deviation above 0. Train again."
        )
    return Column(**row | {"categories": tuple(row["categories"])})


def _check_number(name: str, value: object) -> None:
    """Raise unless a value is a finite number."""
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        raise CheckpointError(f"{name} must be a finite number, got {value!r}. Train again.")


def _check_words(name: str, words: list[Any]) -> None:
    """Raise unless all are words, each once."""
    if not all(isinstance(word, str) for word in words) or len(set(words)) != len(words):
        raise CheckpointError(f"{name} must be words, each once. Train again.")
