"""Tables: one row for each configuration, mean and standard error over seeds."""

import math
from dataclasses import dataclass, replace

from pluribus.report.columns import Cell, Column, columns_of
from pluribus.report.groups import Group


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
    """Mark the best cells of a column."""
    means = [row[position].mean for row in rows if not math.isnan(row[position].mean)]
    best = min(means) if column.lower_is_better else max(means)
    # Equal means are all best.
    for row in rows:
        row[position] = replace(row[position], best=row[position].mean == best)
