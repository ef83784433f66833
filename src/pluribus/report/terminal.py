"""The table of a comparison on a terminal: methods as rows, and as many columns as there is room for."""

from collections.abc import Sequence
from dataclasses import dataclass

from pluribus.report.tables import Cell, Column, Table

IMPORTANCE = (
    *("accuracy", "rmse", "nll", "gaussian_nll", "multiply_adds", "latency", "ece", "coverage_gap_95"),
    *("ood_auroc", "shifted_accuracy", "parameters", "crps", "mean_corruption_error", "shifted_ece"),
)
"""Columns that stay on a narrow terminal, first to last: quality and cost, and then the rest."""
GAP = 2
"""Characters between two columns."""
SHARE_OF_LABELS = 0.4
"""Part of the line that the names of methods may take before they are cut into lines."""


@dataclass(frozen=True)
class _Drawn:
    """A column as it is printed: its head and cells as lines of text, and the width of the longest."""

    column: Column
    head: str
    cells: tuple[str, ...]

    @property
    def width(self) -> int:
        return max(len(line) for text in (self.head, *self.cells) for line in text.split("\n"))


def print_table(table: Table, title: str, metric: str | None = None) -> None:
    """Print the table, the best numbers in bold; columns without room are named below.

    Args:
        table: What to print.
        title: Its title.
        metric: The name of a column that is shown on any terminal.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    console = Console()
    labels = [wrap_label(label, max(12, int(console.width * SHARE_OF_LABELS))) for label in table.rows]
    shown = fitting(_drawn_columns(table), console.width - _width(labels), metric)
    grid = Grid(
        title=Text(title),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        pad_edge=False,
    )
    grid.add_column("method", overflow="fold")
    for one in shown:
        grid.add_column(Text(one.head), justify="right", no_wrap=True)
    positions = [table.columns.index(one.column) for one in shown]
    for number, (label, cells) in enumerate(zip(labels, table.rows.values(), strict=True)):
        best = [cells[position].best for position in positions]
        texts = [one.cells[number] for one in shown]
        styled = [Text(text, "bold" if strong else "") for text, strong in zip(texts, best, strict=True)]
        grid.add_row(Text(label), *styled)
    console.print(grid)
    hidden = [one.title for one in table.columns if one not in [drawn.column for drawn in shown]]
    if hidden:
        console.print(f"no room for {', '.join(hidden)}: see the report", highlight=False, markup=False)
    for failure in table.failures:
        console.print(f"failed: {failure}", style="red", highlight=False, markup=False)


def fitting(columns: Sequence[_Drawn], room: int, metric: str | None) -> list[_Drawn]:
    """Return the most important columns that fit into the room, at least one, in their own order."""
    order = [*([metric] if metric else []), *IMPORTANCE, *(one.column.name for one in columns)]
    chosen: list[_Drawn] = []
    for one in sorted(columns, key=lambda drawn: order.index(drawn.column.name)):
        room -= one.width + GAP
        if room < 0 and chosen:
            break
        chosen.append(one)
    return [one for one in columns if one in chosen]


def wrap_label(label: str, width: int) -> str:
    """Cut `method(one=1, two=2)` into lines between its settings, where it is longer than the width."""
    if len(label) <= width or "(" not in label:
        return label
    name, _, settings = label.partition("(")
    lines = [f"{name}("]
    for setting in settings.split(", "):
        joined = f"{lines[-1]}{setting}" if lines[-1].endswith("(") else f"{lines[-1]} {setting}"
        if len(joined) < width:
            lines[-1] = joined
        else:
            lines.append(f"  {setting}")
        if not setting.endswith(")"):
            lines[-1] += ","
    return "\n".join(lines)


def wrap_head(title: str, arrow: str, width: int) -> str:
    """Cut a head into lines between its words, no wider than the width or its longest word."""
    *words, last = title.split()
    words = [*words, f"{last} {arrow}"]
    width = max(width, *(len(word) for word in words))
    lines = [words[0]]
    for word in words[1:]:
        joined = f"{lines[-1]} {word}"
        if len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(word)
    return "\n".join(lines)


def _drawn_columns(table: Table) -> list[_Drawn]:
    drawn = []
    for position, column in enumerate(table.columns):
        cells = tuple(_two_lines(row[position], column.digits) for row in table.rows.values())
        arrow = "↓" if column.lower_is_better else "↑"
        drawn.append(_Drawn(column, wrap_head(column.title, arrow, _width(cells)), cells))
    return drawn


def _two_lines(cell: Cell, digits: int) -> str:
    """Return a mean with its error below it, which is narrow."""
    return cell.show(digits).replace("±", "\n±")


def _width(texts: Sequence[str]) -> int:
    return max((len(line) for text in texts for line in text.split("\n")), default=0)
