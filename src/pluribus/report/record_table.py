"""The numbers of one record on the terminal, in groups, with their intervals and meanings."""

import math

from pluribus.comparison.record import Record
from pluribus.report.record_groups import grouped


def print_record(record: Record) -> None:
    """Print the groups of a record one below the other, no wider than the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console, groups = Console(), grouped(record)
    lines = [line for own in groups.values() for line in own]
    # The columns of all groups are equally wide, so that numbers stand below one another.
    widths = [
        max((len(text) for text in texts), default=0)
        for texts in (
            [line.name for line in lines],
            [shown(line.value) for line in lines],
            [_ends(line.interval) for line in lines],
        )
    ]
    for title, own in groups.items():
        console.print(Text(f"\n{title}", "bold"))
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(width=widths[0], no_wrap=True)
        grid.add_column(width=widths[1], justify="right", no_wrap=True)
        grid.add_column(width=widths[2], justify="right", no_wrap=True)
        grid.add_column()
        for line in own:
            grid.add_row(line.name, shown(line.value), _ends(line.interval), Text(line.meaning))
        console.print(grid)
    console.print("\nRanges are 95 % bootstrap intervals over the test samples.", highlight=False)


def shown(value: float) -> str:
    """Return a number that is short and exact enough to compare.

    >>> shown(0.123456), shown(1234567.0), shown(float("nan"))
    ('0.1235', '1,234,567', '–')
    """
    if math.isnan(value):
        return "–"
    if value.is_integer() and abs(value) >= 10:
        return f"{int(value):,}"
    return f"{value:.4g}"


def _ends(interval: tuple[float, float] | None) -> str:
    if interval is None:
        return ""
    return f"{interval[0]:.3g} to {interval[1]:.3g}"
