"""The table of a comparison: one row for each method, mean and standard error over seeds."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from pluribus import methods
from pluribus.metrics import METRICS
from pluribus.metrics.shift import ShiftErrors, mean_corruption_error
from pluribus.record import Record
from pluribus.settings import snake_case

WIDE = 120
"""Characters in a line that the table with a column for each number needs."""


@dataclass(frozen=True)
class Column:
    """A number of a record: its head, where it is found, and which values are better."""

    title: str
    value: Callable[[Record], float]
    lower_is_better: bool
    digits: int = 3


@dataclass(frozen=True)
class Cell:
    """The mean over seeds, its standard error (NaN for one seed), and whether it is its column's best."""

    mean: float
    error: float
    best: bool = False

    def show(self, digits: int) -> str:
        """`0.912±0.004`, without an error where it is exact or unknown; a dash where there is no number."""
        if math.isnan(self.mean):
            return "–"
        shown = f"{self.mean:.{digits}f}"
        return f"{shown}±{self.error:.{digits}f}" if self.error > 0 else shown


@dataclass(frozen=True)
class Table:
    """Cells by method and column."""

    columns: tuple[Column, ...]
    rows: dict[str, tuple[Cell, ...]]
    failures: tuple[str, ...] = ()


def label(settings: dict[str, Any]) -> str:
    """A method's name, with those of its settings that are not the usual ones, as one would write it."""
    known = methods.__dict__.get(class_name(settings["kind"]))
    usual = {field.name: field.default for field in fields(known)} if known else {}
    unusual = {n: v for n, v in settings.items() if n not in ("kind", "version") and usual.get(n) != v}
    shown = ", ".join(f"{name}={value}" for name, value in unusual.items())
    return f"{settings['kind']}({shown})" if shown else str(settings["kind"])


def class_name(kind: str) -> str:
    """The class of a method's kind among all methods, or nothing."""
    return next((name for name in methods.__all__ if snake_case(name) == kind), "")


def make_table(records: Sequence[Record]) -> Table:
    """The table of records of one task; failed runs are counted and named apart."""
    sound = [one for one in records if not one.error]
    failures = tuple(f"{label(one.method)} seed {one.seed}: {one.error}" for one in records if one.error)
    columns = tuple(
        column for column in _columns(sound) if any(not math.isnan(column.value(r)) for r in sound)
    )
    labels = dict.fromkeys(label(one.method) for one in sound)
    cells = {
        method: [_cell([c.value(r) for r in sound if label(r.method) == method]) for c in columns]
        for method in labels
    }
    for position, column in enumerate(columns):
        means = [row[position].mean for row in cells.values() if not math.isnan(row[position].mean)]
        best = min(means) if column.lower_is_better else max(means)
        for row in cells.values():
            cell = row[position]
            row[position] = Cell(cell.mean, cell.error, cell.mean == best)
    return Table(columns, {method: tuple(row) for method, row in cells.items()}, failures)


def print_table(table: Table, title: str) -> None:
    """Draws the table on the terminal, the best numbers in bold; on a narrow one, methods side by side."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawn

    console = Console()
    heads = ["method", *(f"{one.title} {'↓' if one.lower_is_better else '↑'}" for one in table.columns)]
    grid = [[method, *map(_drawn, cells, table.columns)] for method, cells in table.rows.items()]
    if console.width < WIDE:
        heads, *grid = (list(line) for line in zip(heads, *grid, strict=True))
    drawn = Drawn(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for position, head in enumerate(heads):
        drawn.add_column(head, justify="right" if position else "left", overflow="fold", min_width=7)
    for line in grid:
        drawn.add_row(*line)
    console.print(drawn)
    for failure in table.failures:
        console.print(f"failed: {failure}", style="red", highlight=False, markup=False)


def _drawn(cell: Cell, column: Column) -> str:
    """A cell in two lines, which are narrow, in bold if it is the best."""
    text = cell.show(column.digits).replace("±", "\n±")
    return f"[bold]{text}[/bold]" if cell.best else text


def _cell(values: list[float]) -> Cell:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Cell(math.nan, math.nan)
    error = statistics.stdev(known) / math.sqrt(len(known)) if len(known) > 1 else math.nan
    return Cell(statistics.fmean(known), error)


def _metric(name: str, title: str = "", digits: int = 3) -> Column:
    metric = METRICS[name]
    return Column(
        title or metric.title, lambda r: r.metrics.get(name, math.nan), metric.direction == "lower", digits
    )


def _columns(records: Sequence[Record]) -> list[Column]:
    return [
        _metric("accuracy"),
        _metric("nll", "NLL"),
        _metric("ece", "ECE"),
        _metric("rmse", "RMSE"),
        _metric("gaussian_nll", "NLL"),
        _metric("crps", "CRPS"),
        _metric("coverage_gap_95", "coverage gap"),
        Column("shifted acc.", lambda r: _mean(r.shifted, "accuracy"), lower_is_better=False),
        Column("shifted ECE", lambda r: _mean(r.shifted, "ece"), lower_is_better=True),
        Column("mCE", lambda r: _corruption_error(r, records), lower_is_better=True),
        Column("OOD AUROC", lambda r: _ood(r), lower_is_better=False),
        Column("params ×", lambda r: r.cost.get("parameters_ratio", math.nan), True, 2),
        Column("mult-adds ×", lambda r: r.cost.get("multiply_adds_ratio", math.nan), True, 2),
        Column("time ×", lambda r: r.cost.get("latency_ratio", math.nan), True, 2),
    ]


def _mean(sections: dict[str, dict[str, float]], name: str) -> float:
    values = [section[name] for section in sections.values() if section.get(name) is not None]
    return statistics.fmean(values) if values else math.nan


def _ood(one: Record) -> float:
    """The mean over sets of the AUROC by entropy, or by variance for regression."""
    known = [_mean(one.ood, name) for name in ("auroc_entropy", "auroc_variance")]
    return next((value for value in known if not math.isnan(value)), math.nan)


def _corruption_error(one: Record, records: Sequence[Record]) -> float:
    """The mCE against the single network of the same seed; NaN where there is none."""
    vanilla = next((r for r in records if r.method["kind"] == "single" and r.seed == one.seed), None)
    if vanilla is None or not one.shifted or "accuracy" not in one.metrics:
        return math.nan
    return mean_corruption_error(_shift_errors(one), _shift_errors(vanilla))


def _shift_errors(one: Record) -> ShiftErrors:
    errors: dict[str, list[float]] = {}
    for name, section in one.shifted.items():
        errors.setdefault(name.split("/")[0], []).append(1 - section["accuracy"])
    return ShiftErrors(1 - one.metrics["accuracy"], errors)
