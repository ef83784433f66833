"""Tables for notebooks, which show what an object's `_repr_html_` returns."""

from collections.abc import Iterable, Sequence
from html import escape

MOST_ROWS = 50
"""Rows that are shown; the rest is counted in a last line."""

# Colours are those of the notebook's theme, light or dark: nothing is set but a line below the head.
HEAD = "text-align: left; border-bottom: 1px solid currentColor; padding: 0.1em 0.7em"
CELL = "text-align: left; padding: 0.1em 0.7em"


def html_table(
    title: str, head: Sequence[str], rows: Iterable[Sequence[object]], notes: Iterable[str] = ()
) -> str:
    """Return a table as HTML, with every text escaped.

    Example:
        >>> html_table("Cost", ["name"], [["a < b"]]).count("a &lt; b")
        1
    """
    listed = [[_text(value) for value in row] for row in rows]
    shown, left = listed[:MOST_ROWS], len(listed) - MOST_ROWS
    lines = [f"<p><b>{escape(title)}</b></p>", "<table>", _row("th", HEAD, head)]
    lines += [_row("td", CELL, row) for row in shown]
    lines.append("</table>")
    if left > 0:
        lines.append(f"<p>and {left} more rows</p>")
    lines += [f"<p>{escape(note)}</p>" for note in notes]
    return "<div>" + "".join(lines) + "</div>"


def _row(tag: str, style: str, texts: Iterable[str]) -> str:
    cells = "".join(f'<{tag} style="{style}">{escape(text)}</{tag}>' for text in texts)
    return f"<tr>{cells}</tr>"


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)
