"""The command `testbed`: run it, print its table, write its page."""

from collections.abc import Sequence
from pathlib import Path

import torch
from rich.table import Table

from pluribus.cli.printing import console, say
from pluribus.testbed.cells import Grid, paper_seeds
from pluribus.testbed.page import make_lines, show, told, write_page
from pluribus.testbed.protocol import Protocol
from pluribus.testbed.results import FILE, Result
from pluribus.testbed.running import run_testbed


def score_methods(names: Sequence[str], grid: Grid, seeds: int, protocol: Protocol, folder: Path) -> None:
    """Score methods against an exact posterior; what the folder has is not computed again.

    Args:
        names: Of presets, or texts of methods.
        grid: The cells.
        seeds: How many problems of each.
        protocol: How to train and score.
        folder: Gets the results and the page.
    """
    # Products of small matrices gain nothing from further threads.
    torch.set_num_threads(1)
    results = run_testbed(names, grid, paper_seeds(seeds), protocol, folder / FILE, _tell)
    print_results(results, protocol)
    console.print(f"report:  {write_page(folder, results, protocol)}", highlight=False, soft_wrap=True)


def _tell(line: str) -> None:
    say(line, "none")


def print_results(results: Sequence[Result], protocol: Protocol) -> None:
    """Print the table of all methods, the best first."""
    lines = make_lines(results, protocol)
    if not lines:
        return
    table = Table(title=told(results), title_justify="left", box=None, pad_edge=False)
    heads = list(lines[0].numbers)
    # The noises between them would not fit a narrow terminal.
    shown = [heads[0], *heads[-2:]]
    table.add_column("method")
    for head in shown:
        table.add_column(head, justify="right")
    for line in lines:
        style = "dim" if line.is_reference else ""
        table.add_row(line.label, *(show(line.numbers[head]) for head in shown), style=style)
    console.print(table)
