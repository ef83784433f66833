"""Cards: the parts of a page that tell about one group, as HTML."""

import math
from collections.abc import Sequence

from pluribus.report.columns import Cell, Column
from pluribus.report.figures.drawing import Panel, Selector
from pluribus.report.figures.reliability import ALL
from pluribus.report.glossary import breakable, escaped, explained, glossed, term
from pluribus.report.price_list import Offer, PriceList
from pluribus.report.recommendation import Recommendation
from pluribus.report.rivals import Rival
from pluribus.report.tables import Table
from pluribus.report.wording import times

FEW_RIVALS = 4
"""Most rivals whose table is open at first."""
BUDGET_MEANING = (
    "The most that a prediction may cost, in multiply-adds and in measured time, as a multiple of the single "
    "network; a tenth more is allowed for time, which is never measured twice alike."
)


def answer_card(found: Recommendation, prices: PriceList | None = None) -> str:
    """Return the recommendation, the best for each budget, the reasons and the numbers behind them."""
    reasons = "".join(f"<li>{explained(sentence)}</li>" for sentence in found.sentences)
    parts = f"{price_table(prices)}<ul>{reasons}</ul>{_numbers_behind(found)}"
    return f'<div class="card answer"><h2>{breakable(found.title)}</h2>{parts}</div>'


def price_table(prices: PriceList | None) -> str:
    """Return the best configuration for each budget as a table; nothing where costs are not known."""
    if prices is None:
        return ""
    heads = f"<th>{term(prices.judge.title, prices.judge.explanation)}</th>"
    if prices.second:
        heads += f"<th>{term(prices.second.title, prices.second.explanation)}</th>"
    rows = "".join(_offer_row(offer, prices) for offer in prices.offers)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Best for each budget">'
        '<table class="prices"><thead><tr><th>'
        f"{term('budget', BUDGET_MEANING)}</th><th>take</th><th>mult-adds</th><th>time</th>{heads}"
        f"<th>against the single network</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _offer_row(offer: Offer, prices: PriceList) -> str:
    cells = f"<td>{_shown(prices.judge.cell(offer.entry), prices.judge)}</td>"
    if prices.second:
        cells += f"<td>{_shown(prices.second.cell(offer.entry), prices.second)}</td>"
    kind = offer.verdict.split()[0]
    gap = ""
    if offer.gap is not None:
        gap = f"{_signed(offer.gap.value, prices.judge.digits)}, "
    return (
        f'<tr><th scope="row">{offer.title}</th><td class="name">{breakable(offer.entry.label)}</td>'
        f"<td>{times(offer.multiply_adds)}</td><td>{times(offer.time)}</td>{cells}"
        f'<td class="verdict-{kind}">{gap}{offer.verdict}</td></tr>'
    )


def _numbers_behind(found: Recommendation) -> str:
    """Return the table of rivals; nothing where there are none."""
    if not found.rivals or found.choice is None or found.judge is None:
        return ""
    rows = "".join(_rival_row(rival, found.judge) for rival in found.rivals)
    title = term(found.judge.title, found.judge.explanation)
    # A long table would push everything else out of sight.
    opened = " open" if len(found.rivals) <= FEW_RIVALS else ""
    own = _shown(found.judge.cell(found.choice), found.judge)
    return (
        f"<details{opened}><summary>The numbers behind it</summary>"
        '<div class="scroll"><table><thead><tr>'
        f"<th>configuration</th><th>{title}</th><th>verdict</th><th>difference</th>"
        f"<th>{glossed('95 % interval')}</th></tr></thead><tbody>"
        f'<tr class="chosen"><th scope="row">{breakable(found.choice.label)}</th>'
        f"<td>{own}</td><td></td><td></td><td></td></tr>{rows}</tbody></table></div></details>"
    )


def _rival_row(rival: Rival, judge: Column) -> str:
    """Return the row of a rival: its quality, and its difference from the choice."""
    cells = "<td>–</td><td>–</td>"
    if rival.gap is not None:
        gap = rival.gap
        value, low, high = (_signed(one, judge.digits) for one in (gap.value, gap.low, gap.high))
        cells = f"<td>{value}</td><td>{low} to {high}</td>"
    # The style sheet colours a verdict by its first word.
    kind = rival.verdict.split()[0]
    return (
        f'<tr><th scope="row">{breakable(rival.entry.label)}</th><td>{_shown(rival.cell, judge)}</td>'
        f'<td class="verdict-{kind}">{rival.verdict}</td>{cells}</tr>'
    )


def _signed(value: float, digits: int) -> str:
    """Return a number with its sign; a minus sign is as wide as a plus, a hyphen is not."""
    return f"{value:+.{digits}f}".replace("-", "−")


def missing_card(sentences: Sequence[str]) -> str:
    """Return what is missing; nothing where nothing is."""
    if not sentences:
        return ""
    items = "".join(f"<li>{explained(sentence)}</li>" for sentence in sentences)
    return f'<div class="card missing"><h2>What is missing</h2><ul>{items}</ul></div>'


def table_card(table: Table, found: Recommendation) -> str:
    """Return the table of all numbers; nothing where it has no rows."""
    if not table.rows:
        return ""
    heads = "".join(_head(column) for column in table.columns)
    chosen = found.choice.label if found.choice else None
    rows = "".join(_row(label, cells, table, label == chosen) for label, cells in table.rows.items())
    return (
        '<div class="card"><h2>All numbers</h2><p class="quiet small">Means over seeds '
        f"± {glossed('standard error')}; ↓ lower is better, ↑ higher is better, bold is best, "
        "★ is recommended. Choose a head to sort by it.</p>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="All numbers"><table class="sortable">'
        f'<thead><tr><th scope="col"><button type="button">configuration</button></th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></div>"
    )


def _head(column: Column) -> str:
    """Return the head of a column, a button that sorts by it, the best first."""
    order, arrow = ("ascending", "↓") if column.lower_is_better else ("descending", "↑")
    return (
        f'<th scope="col" data-first="{order}">'
        f'<button type="button" data-tip="{escaped(column.explanation)}">{escaped(column.title)} '
        f"{arrow}</button></th>"
    )


def _row(label: str, cells: Sequence[Cell], table: Table, chosen: bool) -> str:
    marked = " class=chosen" if chosen else ""
    return (
        f'<tr{marked}><th scope="row" data-value="{escaped(label)}">'
        f"{breakable(label)}</th>{''.join(map(_cell, cells, table.columns))}</tr>"
    )


def _cell(cell: Cell, column: Column) -> str:
    """Return a cell with the number that the script sorts by."""
    value = "" if math.isnan(cell.mean) else f"{cell.mean:.6g}"
    best = " class=best" if cell.best else ""
    return f'<td data-value="{value}"{best}>{_shown(cell, column)}</td>'


def _shown(cell: Cell, column: Column) -> str:
    """Return a mean with its standard error in small print."""
    mean, _, error = cell.show(column.digits).partition("±")
    return f'{mean}<span class="error"> ± {error}</span>' if error else mean


def panel_card(name: str, panel: Panel, found: Recommendation | None) -> str:
    """Return the place of a figure, which the script draws, with its selectors."""
    choices = "".join(_selector(one, found) for one in panel.selectors)
    return (
        f'<div class="card"><h2>{escaped(panel.title)}</h2>'
        f'<p class="quiet small">{explained(panel.caption)}</p>'
        f'<div class="choices">{choices}</div><div class="figure">'
        f'<div class="plot" id="{name}" tabindex="0" role="img" aria-label="{escaped(panel.title)}"></div>'
        '<p class="absent quiet" hidden>This was not measured.</p>'
        '<details class="numbers"><summary>As numbers</summary><div class="scroll"></div></details>'
        "</div></div>"
    )


def _selector(selector: Selector, found: Recommendation | None) -> str:
    """Return a selector; the first option is chosen, or the recommended configuration."""
    chosen = selector.options[0]
    # A selector that begins with all configurations shows all of them.
    if found and found.choice and chosen != ALL:
        chosen = found.choice.label
    options = ""
    for option in selector.options:
        marked = " selected" if option == chosen else ""
        options += f'<option value="{escaped(option)}"{marked}>{escaped(option)}</option>'
    return f"<label>{escaped(selector.name)} <select>{options}</select></label>"
