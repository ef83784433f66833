"""Puts the table of all metrics where a page asks for it: their rows stand in the code alone."""

from typing import Any

from pluribus.metrics import METRICS

MARK = "<!-- metrics -->"
HEAD = "| name | | range | what it says |\n|---|---|---|---|\n"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """What mkdocs calls with every page."""
    return markdown.replace(MARK, HEAD + "\n".join(map(row, METRICS.values())))


def row(metric: Any) -> str:
    """A line of the table."""
    better = "↑" if metric.direction == "higher" else "↓"
    low, high = (f"{end:g}".replace("inf", "∞") for end in metric.range)
    paper = f" *{metric.paper}.*" if metric.paper else ""
    name = metric.name.replace("_", "_<wbr>")  # may be broken there on a narrow screen
    return f"| <code>{name}</code> | {better} | {low} to {high} | {metric.explanation}{paper} |"
