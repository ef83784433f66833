"""The page of a run of the testbed: a table of all methods, and the paper's figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pluribus.report.cards import panel_card
from pluribus.report.columns import Cell as Number
from pluribus.report.glossary import breakable, escaped, glossed
from pluribus.report.page import make_document
from pluribus.testbed.figures import make_panels
from pluribus.testbed.protocol import DIRECTIONS, Protocol
from pluribus.testbed.results import Result
from pluribus.testbed.summary import (
    Row,
    by_cell,
    common,
    counted_seeds,
    mean_over_cells,
    rows_of,
    summarise,
)
from pluribus.writing import replacing, write_words

FILE = "testbed.html"
TITLES = {"code": "KL(posterior ‖ model)", "printed": "KL(model ‖ posterior)"}
DIGITS = 3


@dataclass(frozen=True)
class Line:
    """A row of the table with its numbers, by head of the column."""

    label: str
    numbers: dict[str, Number]
    is_reference: bool


def make_lines(results: Sequence[Result], protocol: Protocol) -> list[Line]:
    """Return the rows of the table on the problems that all methods have, the best first."""
    shared = common(results)
    other = next(one for one in DIRECTIONS if one != protocol.direction)
    noises = sorted({result.cell.noise for result in shared})
    lines = list[Line]()
    for row in rows_of(shared):
        numbers = {TITLES[protocol.direction]: summarise(shared, row, protocol.direction)}
        if len(noises) > 1:
            for noise in noises:
                some = [result for result in shared if result.cell.noise == noise]
                numbers[f"at ε={noise:g}"] = summarise(some, row, protocol.direction)
        numbers[TITLES[other]] = summarise(shared, row, other)
        numbers["joint KL of pairs"] = _joint(shared, row)
        lines.append(Line(row.label, numbers, row.is_reference))
    return sorted(lines, key=lambda line: next(iter(line.numbers.values())).mean)


def _joint(results: Sequence[Result], row: Row) -> Number:
    """Return the joint score of all members of a method; ranked members have none."""
    if row.label != row.method:
        return Number(math.nan, math.nan)
    own = [result for result in results if result.method == row.method]
    return mean_over_cells(by_cell(own, lambda result: result.joint))


def show(number: Number) -> str:
    """Return a number with its standard error; large ones without decimals."""
    if math.isnan(number.mean):
        return "–"
    digits = DIGITS if number.mean < 100 else 0
    error = f" ± {number.error:.{digits}f}" if number.error > 0 else ""
    return f"{number.mean:.{digits}f}{error}"


def told(results: Sequence[Result]) -> str:
    """Return over how many problems the table is, in a sentence."""
    shared = common(results)
    seeds = counted_seeds(shared)
    if not seeds:
        return "There are no results."
    few, many = min(seeds.values()), max(seeds.values())
    span = f"{few} to {many} seeds" if few < many else f"{few} seed" + "s" * (few > 1)
    problems = len({(result.cell, result.seed) for result in shared})
    return f"Means over {len(seeds)} cells with {span} each: {problems} problems that all methods have."


def make_page(results: Sequence[Result], protocol: Protocol) -> str:
    """Return the whole page as HTML.

    Args:
        results: Of one protocol.
        protocol: Its direction is the one that is shown first.
    """
    panels = {panel.name: panel for panel in make_panels(results, protocol.direction)} if results else {}
    cards = _table_card(results, protocol)
    cards += "".join(panel_card(name, panel, None) for name, panel in panels.items())
    draws = "the authors' draws in a step" if protocol.as_in_paper else "all members or a few draws in a step"
    settings = (
        f"{protocol.steps} steps of {protocol.batch} samples, learning rate {protocol.rate:g}, {draws}; "
        f"{protocol.points} test points; {protocol.noise} noise of the posterior."
    )
    footer = f"<footer>{escaped(settings)} Made by Pluribus; everything is in this file.</footer>"
    return make_document("Testbed: is the uncertainty right?", cards + footer, panels)


def _table_card(results: Sequence[Result], protocol: Protocol) -> str:
    """Return the table of all methods."""
    if not results:
        return '<p class="card">There are no results.</p>'
    lines = make_lines(results, protocol)
    heads = "".join(_head(head) for head in lines[0].numbers)
    rows = "".join(_row(line, lines) for line in lines)
    return (
        f'<div class="card"><h2>All methods</h2><p class="quiet small">{escaped(told(results))} '
        f"± {glossed('standard error')} over seeds; lower is better, bold is the best method. The exact "
        "posterior, its half width and the prior are no methods: they show what the score makes of a known "
        "distribution. Choose a head to sort by it.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="All methods"><table class="sortable">'
        f'<thead><tr><th scope="col"><button type="button">method</button></th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></div>"
    )


def _head(title: str) -> str:
    return f'<th scope="col" data-first="ascending"><button type="button">{escaped(title)} ↓</button></th>'


def _row(line: Line, lines: Sequence[Line]) -> str:
    """Return a row; references are in quiet print, and never the best."""
    cells = ""
    for head, number in line.numbers.items():
        rivals = [one.numbers[head].mean for one in lines if not one.is_reference]
        known = [mean for mean in rivals if not math.isnan(mean)]
        best = " class=best" if not line.is_reference and number.mean == min(known, default=None) else ""
        value = "" if math.isnan(number.mean) else f"{number.mean:.6g}"
        mean, _, error = show(number).partition(" ± ")
        small = f'<span class="error"> ± {error}</span>' if error else ""
        cells += f'<td data-value="{value}"{best}>{mean}{small}</td>'
    quiet = ' class="quiet"' if line.is_reference else ""
    label = escaped(line.label)
    return f'<tr{quiet}><th scope="row" data-value="{label}">{breakable(line.label)}</th>{cells}</tr>'


def write_page(folder: Path, results: Sequence[Result], protocol: Protocol) -> Path:
    """Write the page into a folder, and return its path."""
    page = make_page(results, protocol)
    with replacing(folder / FILE) as unfinished:
        write_words(unfinished, page)
    return folder / FILE
