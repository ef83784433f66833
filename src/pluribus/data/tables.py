"""Tables as cells by column: from CSV, from Parquet, from a DataFrame. Imports no torch."""

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pluribus.data.cells import Cells
from pluribus.data.limits import MOST_BYTES, check_bytes, check_file, listed
from pluribus.data.sources import optional, reading
from pluribus.errors import InputError
from pluribus.ranges import check, invalid, nearest

CELL_BYTES = 64
"""Memory of one cell while it is text: Python's string and its place in a list."""


@dataclass(frozen=True)
class Table:
    """Cells by name of column.

    Args:
        title: Name of the table in error messages.
        cells: Cells of each column, in the order of the columns.
        lines: Number of each row's line in its file, or of the row.
    """

    title: str
    cells: Mapping[str, Cells]
    lines: Sequence[int]

    def __len__(self) -> int:
        return len(self.lines)

    def take(self, rows: Sequence[int]) -> "Table":
        """Return some of the rows, by their places."""
        chosen = {name: [cells[row] for row in rows] for name, cells in self.cells.items()}
        return Table(self.title, chosen, [self.lines[row] for row in rows])

    def select(self, names: Iterable[str]) -> "Table":
        """Return some of the columns."""
        return Table(self.title, {name: self.cells[name] for name in names}, self.lines)


def read_table(path: Path, delimiter: str = ",", most_bytes: int = MOST_BYTES) -> Table:
    """Return the table of a CSV file in UTF-8 with a header, or of a `.parquet` file."""
    check("most_bytes", most_bytes, int, at_least=1)
    check_file(path)
    if path.suffix == ".parquet":
        return _read_parquet(path, most_bytes)
    return _read_csv(path, delimiter, most_bytes)


def from_frame(frame: Any) -> Table:
    """Return the table of a pandas DataFrame, without its index."""
    names = [str(name) for name in frame.columns]
    check_names("the DataFrame", names)
    cells: dict[str, Cells] = {}
    for place, name in enumerate(names):
        column = frame.iloc[:, place]
        blank = column.isna().tolist()
        cells[name] = [None if empty else cell for cell, empty in zip(column.tolist(), blank, strict=True)]
    return Table("the DataFrame", cells, range(len(frame)))


def _read_csv(path: Path, delimiter: str, most_bytes: int) -> Table:
    check_delimiter(delimiter)
    lines: list[int] = []
    rows: list[list[str]] = []
    with reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise InputError(
                        f"{path} must have {len(header)} cells in each row, "
                        f"got {len(row)} in line {reader.line_num}. Complete or quote it."
                    )
                rows.append(row)
                lines.append(reader.line_num)
                check_bytes(f"the cells of {path}", len(rows) * len(header) * CELL_BYTES, most_bytes)
        except csv.Error as error:
            raise InputError(f"{path} must be a CSV file, got {error} in line {reader.line_num}.") from error
    if not rows:
        raise InputError(f"{path} must hold a header and rows, got no rows.")
    check_names(f"the header of {path}", header)
    return Table(str(path), dict(zip(header, zip(*rows, strict=True), strict=True)), lines)


def _read_parquet(path: Path, most_bytes: int) -> Table:
    parquet = optional("pyarrow.parquet", "pyarrow")
    with reading(path):
        file = parquet.ParquetFile(path)
        count = file.metadata.num_rows * file.metadata.num_columns
        check_bytes(f"the cells of {path}", count * CELL_BYTES, most_bytes)
        names = [str(name) for name in file.schema_arrow.names]
        check_names(str(path), names)
        cells = file.read().to_pydict()
    if not file.metadata.num_rows:
        raise InputError(f"{path} must hold rows, got none.")
    # pandas stores the index of a DataFrame as a column of this name.
    kept = {name: cells[name] for name in names if not name.startswith("__index_level_")}
    return Table(str(path), kept, range(1, file.metadata.num_rows + 1))


def check_names(where: str, names: Sequence[str]) -> None:
    """Raise for names that occur twice."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InputError(f"{where} must name each column once, got {listed(list(map(repr, twice)))} twice.")


def check_columns(table: Table, wanted: Sequence[str], delimiter: str = ",") -> None:
    """Raise for columns that are not there, or are asked for twice."""
    check_names("target and features", wanted)
    for name in wanted:
        if name in table.cells:
            continue
        hint = nearest(name, table.cells)
        if len(table.cells) < 2:
            hint = f" Is {delimiter!r} the delimiter of the file?"
        raise InputError(f"{table.title} has the columns {listed(list(table.cells))}, got {name!r}.{hint}")


def check_delimiter(delimiter: object) -> None:
    """Raise unless the delimiter is one character that can stand between cells."""
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '\r\n"\0':
        raise invalid("delimiter", "one character other than a quote or a line break", delimiter)


def is_number(cell: str) -> bool:
    """Return whether a cell can be read as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
