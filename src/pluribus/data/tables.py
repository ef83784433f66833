"""Tables as cells by column, also of a DataFrame. Imports no torch."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pluribus.data.cells import Cells, is_missing
from pluribus.data.limits import listed
from pluribus.errors import InputError
from pluribus.ranges import invalid, nearest


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


def from_frame(frame: Any) -> Table:
    """Return the table of a pandas DataFrame, without its index."""
    names = [str(name) for name in frame.columns]
    check_names("the DataFrame", names)
    cells: dict[str, Cells] = {}
    for place, name in enumerate(names):
        # pandas' own isna raises InvalidOperation for a signalling NaN (3.1).
        column = frame.iloc[:, place].tolist()
        cells[name] = [None if is_missing(cell, frozenset()) else cell for cell in column]
    return Table("the DataFrame", cells, range(len(frame)))


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
