"""Inputs to predict for in tables: cells encoded as in training, with flags and ids."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pluribus.data.columns import DROPPED, NUMBER, Column, Columns
from pluribus.data.limits import listed
from pluribus.data.signature import Signature
from pluribus.data.table_chunks import table_chunks
from pluribus.data.tables import Table, check_columns, is_number
from pluribus.errors import InputError

ID = "an id"
"""Beginning of the note on a column that only names the rows."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table as a network takes them.

    Args:
        values: Numbers, `[count, features]`.
        flags: How each row is unlike training; empty where it is not.
        ids: The cell of a column of ids of each row, or the number of its line.
    """

    values: Tensor
    flags: tuple[str, ...]
    ids: tuple[Any, ...]


def table_inputs(path: Path, signature: Signature, rows: int) -> Iterator[Rows]:
    """Yield the rows of a CSV or Parquet file, up to so many at a time."""
    for table in table_chunks(path, signature.delimiter, rows):
        yield encoded_rows(table, signature, table.lines)


def plain_columns(names: tuple[str, ...]) -> Columns:
    """Return columns of numbers that all have to be there: no word stands for a missing one."""
    return Columns(tuple(Column(name, NUMBER) for name in names), missing_words=())


def encoded_rows(table: Table, signature: Signature, lines: Sequence[int] | None = None) -> Rows:
    """Return the columns by their names, or all in order where the network has no names of features.

    Args:
        table: The cells.
        signature: Of the network that the rows are for.
        lines: Number of each row's line in its file, for error messages; None for a table in memory.
    """
    columns = signature.columns or plain_columns(signature.feature_names or tuple(table.cells))
    names = [column.name for column in columns.used]
    # A file without a header would lose its first row, and fail with a message on names that are numbers.
    if all(map(is_number, table.cells)) and not set(names) <= set(table.cells):
        raise InputError(
            f"the first line of {table.title} must name the {len(names)} features {listed(names)}, "
            "got numbers. Put the names above it."
        )
    check_columns(table, names, signature.delimiter)
    encoded = columns.encode(table.cells, lines)
    return Rows(torch.from_numpy(encoded.values), encoded.flags, _ids(table, columns))


def _ids(table: Table, columns: Columns) -> tuple[Any, ...]:
    """Return the cells of the column that training recognised as ids, else the numbers of the lines."""
    for column in columns.columns:
        recognised = column.kind == DROPPED and column.note.startswith(ID)
        if recognised and column.name in table.cells:
            return tuple(table.cells[column.name])
    return tuple(table.lines)
