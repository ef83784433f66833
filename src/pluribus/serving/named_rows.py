"""Rows of a request whose values have names: cells of a table, or the inputs of a network."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pluribus.data.column_record import columns_from_dict
from pluribus.data.columns import NUMBER, Column, Columns
from pluribus.schema import shown
from pluribus.serving.refusal import bad


def read_table(rows: Sequence[Any], names: Sequence[str], blanks: bool) -> dict[str, list[Any]]:
    """Return the cells of rows by column; raise `Refusal` for cells that are no plain values."""
    table = by_name(rows, names)
    for name, cells in table.items():
        for cell in cells:
            if not isinstance(cell, str | int | float | bool | None):
                raise bad(
                    f"a cell must be a text, a number, true, false or null, got {name!r}: {shown(cell)}."
                )
            if cell is None and not blanks:
                raise bad(f"column {name!r} must have a number in each row, got null.")
            if isinstance(cell, float) and not np.isfinite(cell):
                raise bad(f"column {name!r} must be finite, got {cell}. Pass null for a missing value.")
    return table


def by_name(rows: Sequence[Any], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values of rows by name."""
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise bad(f"every row must be an object, as the first is, got {shown(row)} in row {number}.")
        lacking = [name for name in names if name not in row]
        if lacking:
            raise bad(f"row {number} must have {lacking[0]!r}, got no such name. Pass null if it is missing.")
    return {name: [row[name] for row in rows] for name in names}


def named_columns(document: Mapping[str, Any]) -> Columns | None:
    """Return the columns of a run; where a table has numbers with names alone, one for each name."""
    if document["columns"] is not None:
        return columns_from_dict(document["columns"])
    names = document["feature_names"]
    if not names or len(set(names)) != len(names):
        return None
    # No word stands for a missing number.
    return Columns(tuple(Column(name, NUMBER) for name in names), missing_words=())
