"""The table of a comparison on a terminal: methods as rows, and as many columns as there is room for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pluribus.report.columns import Cell, Column
from pluribus.report.price_list import Offer, PriceList
from pluribus.report.tables import Table
from pluribus.report.wording import times

IMPORTANCE = (
    *("expected_cost", "accuracy", "dice", "rmse", "nll", "gaussian_nll", "calibrated_nll"),
    *("calibrated_gaussian_nll", "multiply_adds", "shifted_nll", "shifted_gaussian_nll", "ood_auroc"),
    *("latency", "auroc", "threshold_sensitivity", "threshold_specificity", "ece", "coverage_gap_95"),
    *("ood_auroc_entropy", "calibrated_ece", "shifted_calibrated_nll"),
    *("shifted_accuracy", "parameters", "crps", "mean_corruption_error", "shifted_ece"),
)
"""Columns that stay on a narrow terminal, first to last: quality and cost, and then the rest."""
GAP = 2
"""Characters between two columns."""
SHARE_OF_LABELS = 0.25
"""Part of the line that the names of methods may take before they are cut into lines. At 80 characters the
columns of the demo that matter most, down to the AUROC, have room beside them."""


@dataclass(frozen=True)
class _Drawn:
    """A column as it is printed.

    Attributes:
        column: Where its numbers come from.
        head: Its title, in lines.
        cells: Its numbers, in lines, one text for each method.
        best: Which of the numbers are the best.
    """

    column: Column
    head: str
    cells: tuple[str, ...]
    best: tuple[bool, ...]

    @property
    def width(self) -> int:
        return _width([self.head, *self.cells])


def print_table(table: Table, title: str, metric: str | None = None) -> None:
    """Print the table, the best numbers in bold; columns without room are named below.

    Args:
        table: What to print.
        title: Its title.
        metric: The name of a column that is shown on any terminal.
    """
    from rich.console import Console

    console = Console()
    width_of_labels = max(12, int(console.width * SHARE_OF_LABELS))
    labels = [wrap_label(label, width_of_labels) for label in table.rows]
    columns = _drawn_columns(table)
    shown = fitting(columns, console.width - _width(labels), metric)
    console.print(_grid(title, labels, shown))
    hidden = [one.column.title for one in columns if one not in shown]
    if hidden:
        console.print(f"no room for {', '.join(hidden)}: see the report", highlight=False, markup=False)
    for failure in table.failures:
        console.print(f"failed: {failure}", style="red", highlight=False, markup=False)


def print_prices(prices: PriceList | None) -> None:
    """Print the best configuration for each budget; nothing where costs are not known."""
    if prices is None:
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    console = Console()
    grid = Grid(
        title=Text("Best for each budget of multiply-adds and time"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        pad_edge=False,
    )
    labels, heads, rows = price_cells(prices, console.width)
    grid.add_column("budget", justify="right", no_wrap=True)
    grid.add_column("take", overflow="fold")
    for head in heads:
        grid.add_column(Text(head), justify="right", no_wrap=True)
    for offer, label, row in zip(prices.offers, labels, rows, strict=True):
        grid.add_row(offer.title, Text(label), *row)
    console.print()
    console.print(grid)
    console.print()


def price_cells(prices: PriceList, width: int) -> tuple[list[str], list[str], list[list[str]]]:
    """Return names of configurations, heads of columns and numbers, cut into lines that fit into the width.

    Verdicts are cut into lines first, because a name that is cut within a setting cannot be read.
    """
    heads = ["mult-adds", "time", prices.judge.title, *([prices.second.title] if prices.second else [])]
    heads.append("against single")
    rows = [_offered(offer, prices) for offer in prices.offers]
    names = [offer.entry.label for offer in prices.offers]
    if _room_for_names(heads, rows, width) < _width(names):
        heads = ["\n".join(head.split()) for head in heads]
        rows = [[*row[:-1], _folded(row[-1])] for row in rows]
    room = _room_for_names(heads, rows, width)
    return [wrap_label(name, room) for name in names], heads, rows


def _room_for_names(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> int:
    """Return how long names may be beside the other columns."""
    taken = len("budget") + GAP
    for head, *cells in zip(heads, *rows, strict=True):
        taken += _width([head, *cells]) + GAP
    return max(12, width - taken)


def _folded(verdict: str) -> str:
    """Return a verdict in two lines, the last word in the second."""
    return "\n".join(verdict.rsplit(" ", 1))


def _offered(offer: Offer, prices: PriceList) -> list[str]:
    """Return the numbers of an offer as they are printed."""
    cells = [f"{prices.judge.cell(offer.entry).mean:.{prices.judge.digits}f}"]
    if prices.second:
        cells.append(f"{prices.second.cell(offer.entry).mean:.{prices.second.digits}f}")
    # The single network is compared with nothing.
    verdict = "–" if offer.verdict.startswith("it is") else offer.verdict
    return [times(offer.multiply_adds), times(offer.time), *cells, verdict]


def _grid(title: str, labels: Sequence[str], columns: Sequence[_Drawn]) -> Any:
    """Return the table as rich draws it."""
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    # Names are given as `Text`, in which rich looks for no markup.
    grid = Grid(
        title=Text(title),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        pad_edge=False,
    )
    grid.add_column("method", overflow="fold")
    for one in columns:
        grid.add_column(Text(one.head), justify="right", no_wrap=True)
    for number, label in enumerate(labels):
        row = [Text(label)]
        for one in columns:
            style = "bold" if one.best[number] else ""
            row.append(Text(one.cells[number], style))
        grid.add_row(*row)
    return grid


def fitting(columns: Sequence[_Drawn], room: int, metric: str | None) -> list[_Drawn]:
    """Return the most important columns that fit into the room, at least one, in their own order."""
    if not columns:  # every run failed
        return []
    order = [*IMPORTANCE, *(one.column.name for one in columns)]
    if metric is not None:
        order.insert(0, metric)
    by_importance = sorted(columns, key=lambda one: order.index(one.column.name))
    chosen = by_importance[:1]
    room -= by_importance[0].width + GAP
    for one in by_importance[1:]:
        room -= one.width + GAP
        # A narrower column of less importance would not be missed: the first that does not fit is the end.
        if room < 0:
            break
        chosen.append(one)
    return [one for one in columns if one in chosen]


def wrap_label(label: str, width: int) -> str:
    """Cut `method(one=1, two=2)` into lines between its settings, where it is longer than the width."""
    if len(label) <= width:
        return label
    name, bracket, settings = label.partition("(")
    if not bracket:
        return label
    words = settings.replace(", ", ",\n").split("\n")
    first, *others = _fill(words, width - len(name) - 1)
    if len(name) + 1 + len(first) > width:
        # Not even one setting fits behind a long name: all of them come below it.
        first, others = "", _fill(words, width - 2)
    return "\n".join([f"{name}({first}", *(f"  {line}" for line in others)])


def wrap_head(title: str, arrow: str, width: int) -> str:
    """Cut a head into lines between its words, no wider than the width or its longest word."""
    *words, last = title.split()
    return "\n".join(_fill([*words, f"{last} {arrow}"], width))


def _fill(words: Sequence[str], width: int) -> list[str]:
    """Join words to lines no wider than the width or the longest word."""
    width = max(width, _width(words))
    lines = [words[0]]
    for word in words[1:]:
        joined = f"{lines[-1]} {word}"
        if len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(word)
    return lines


def _drawn_columns(table: Table) -> list[_Drawn]:
    """Return all columns of a table as they are printed."""
    drawn = []
    for position, column in enumerate(table.columns):
        cells = [row[position] for row in table.rows.values()]
        texts = tuple(_two_lines(cell, column.digits) for cell in cells)
        best = tuple(cell.best for cell in cells)
        arrow = "↓" if column.lower_is_better else "↑"
        head = wrap_head(column.title, arrow, _width(texts))
        drawn.append(_Drawn(column, head, texts, best))
    return drawn


def _two_lines(cell: Cell, digits: int) -> str:
    """Return a mean with its error below it, which is narrow."""
    return cell.show(digits).replace("±", "\n±")


def _width(texts: Iterable[str]) -> int:
    """Return the length of the longest line."""
    lines = "\n".join(texts).split("\n")
    return max(len(line) for line in lines)
