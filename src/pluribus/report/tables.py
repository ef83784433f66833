"""Tables: one row for each configuration, mean and standard error over seeds."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pluribus.report.columns import Cell, Column, columns_of
from pluribus.report.groups import Group

# Characters in a line that the table with a column for each number needs.
WIDE = 120
# Characters of a column where configurations stand side by side.
EACH = 13
# A number with three decimals, and its error below, fit into so many characters.
NARROWEST = 7

Lines = list[list[str]]


@dataclass(frozen=True)
class Table:
    """Cells by configuration and column."""

    columns: tuple[Column, ...]
    rows: dict[str, tuple[Cell, ...]]
    failures: tuple[str, ...] = ()


def make_table(group: Group) -> Table:
    """Return the table of a group; failed runs are listed apart."""
    columns = columns_of(group)
    cells: dict[str, list[Cell]] = {}
    for entry in group.entries:
        cells[entry.label] = [column.cell(entry) for column in columns]
    for position, column in enumerate(columns):
        _mark_best(list(cells.values()), position, column)
    rows = {label: tuple(row) for label, row in cells.items()}
    failures = tuple(f"{label} seed {run.seed}: {run.error}" for label, run in group.failures)
    return Table(columns, rows, failures)


def _mark_best(rows: list[list[Cell]], position: int, column: Column) -> None:
    """Mark the best cells of a column; equal means are all best."""
    means = [row[position].mean for row in rows if not math.isnan(row[position].mean)]
    best = min(means) if column.lower_is_better else max(means)
    for row in rows:
        row[position] = replace(row[position], best=row[position].mean == best)


def print_table(table: Table, title: str) -> None:
    """Print the table on the terminal, the best numbers in bold.

    A narrow terminal gets configurations side by side, as many at a time as there is room for.
    """
    # Only the command line prints: importing `pluribus` does without rich.
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as Drawn

    console = Console()
    for number, (heads, *lines) in enumerate(_grids(_lines(table), console.width)):
        named = None if number else escape(title)
        drawn = Drawn(title=named, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for position, head in enumerate(heads):
            justify = "right" if position else "left"
            drawn.add_column(head, justify=justify, overflow="fold", min_width=NARROWEST)  # type: ignore[arg-type]
        for line in lines:
            drawn.add_row(*line)
        console.print(drawn)
    for failure in table.failures:
        console.print(f"failed: {failure}", style="red", highlight=False, markup=False)


def _lines(table: Table) -> Lines:
    """Return the text of all cells, the line of heads first."""
    from rich.markup import escape

    heads = [f"{column.title} {'↓' if column.lower_is_better else '↑'}" for column in table.columns]
    lines = [["method", *heads]]
    for label, cells in table.rows.items():
        lines.append([escape(label), *map(_drawn, cells, table.columns)])
    return lines


def _grids(lines: Lines, width: int) -> Iterator[Lines]:
    """Yield the lines as they fit a terminal: as they are, or turned, a few configurations at a time."""
    if width >= WIDE:
        yield lines
        return
    heads, *rows = lines
    most = max(1, width // EACH - 1)
    for start in range(0, len(rows), most):
        part = rows[start : start + most]
        yield [list(line) for line in zip(heads, *part, strict=True)]


def _drawn(cell: Cell, column: Column) -> str:
    """Return a cell in two lines, which are narrow, in bold if it is the best."""
    text = cell.show(column.digits).replace("±", "\n±")
    return f"[bold]{text}[/bold]" if cell.best else text
