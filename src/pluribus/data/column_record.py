"""The columns of a table as a JSON value, and back. Files are not trusted, so that every field is checked."""

from dataclasses import asdict
from typing import Any

from pluribus.data.columns import KINDS, Column, Columns
from pluribus.errors import CheckpointError
from pluribus.schema import Fields, Items, Number, Schema, Text, Whole

VERSION = 1
SCHEMA: Schema = Fields(
    {
        "version": Whole(VERSION, VERSION),
        "missing_words": Items(Text()),
        "columns": Items(
            Fields(
                {
                    "name": Text(),
                    "kind": Text(pattern="|".join(KINDS), name=f"one of {', '.join(KINDS)}"),
                    "mean": Number(finite=True),
                    "deviation": Number(finite=True),
                    "low": Number(finite=True),
                    "high": Number(finite=True),
                    "fill": Number(finite=True),
                    "categories": Items(Text()),
                    "missing": Whole(),
                    "note": Text(),
                }
            )
        ),
    }
)


def columns_to_dict(columns: Columns) -> dict[str, Any]:
    """Return a value that JSON can hold and that `SCHEMA` describes."""
    rows = [asdict(column) | {"categories": list(column.categories)} for column in columns]
    return {"version": VERSION, "missing_words": list(columns.missing_words), "columns": rows}


def columns_from_dict(values: dict[str, Any]) -> Columns:
    """Return the columns that `columns_to_dict` wrote; the value was checked by `SCHEMA`.

    Raises:
        CheckpointError: Names or categories occur twice, a deviation is not above 0, or no column is used.
    """
    found = [Column(**row | {"categories": tuple(row["categories"])}) for row in values["columns"]]
    _check_once("columns", [column.name for column in found])
    for column in found:
        _check_once(f"categories of column {column.name!r}", column.categories)
        if column.deviation <= 0:
            raise CheckpointError(f"the deviation of column {column.name!r} must be above 0. Train again.")
    columns = Columns(tuple(found), tuple(values["missing_words"]))
    if not columns.features:
        raise CheckpointError("a column must be used, got only dropped ones. Train again.")
    return columns


def _check_once(what: str, words: list[str] | tuple[str, ...]) -> None:
    """Raise for words that occur twice."""
    if len(set(words)) != len(words):
        raise CheckpointError(f"{what} must have each name once, got one twice. Train again.")
