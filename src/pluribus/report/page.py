"""The page: one HTML file with everything inside, to open, to understand in a minute, and to send on."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from pluribus.ranges import invalid
from pluribus.report.budget import Limit
from pluribus.report.cards import answer_card, missing_card, panel_card, table_card
from pluribus.report.choice_file import write_choice
from pluribus.report.defects import defects_card, found_defects
from pluribus.report.figures import make_panels
from pluribus.report.figures.drawing import Panel
from pluribus.report.focus import focused
from pluribus.report.gallery import read_wall
from pluribus.report.glossary import escaped
from pluribus.report.groups import Group
from pluribus.report.judging import qualities
from pluribus.report.maps_card import maps_card
from pluribus.report.missing import missing
from pluribus.report.price_list import make_price_list
from pluribus.report.recommendation import Recommendation, recommend
from pluribus.report.tables import make_table
from pluribus.report.use_card import use_card
from pluribus.report.wall_card import wall_card
from pluribus.writing import replacing, write_words

FILE = "report.html"


def make_page(
    groups: Sequence[Group],
    limits: tuple[Limit, ...] = (),
    metric: str | None = None,
    folder: Path | None = None,
) -> str:
    """Return the whole page.

    Args:
        groups: The result of `group_records`, of records read with their outcomes.
        limits: The budget.
        metric: The quality to judge by where a group has it.
        folder: The folder of the comparison, for the lines that use its best ensemble; None leaves them out.

    Raises:
        SettingError: no group has the metric.
    """
    return _page_of(_recommend_all(groups, limits, metric), folder)


def _recommend_all(
    groups: Sequence[Group], limits: tuple[Limit, ...], metric: str | None
) -> list[Recommendation]:
    """Return the recommendation of each group; raise where none has the metric."""
    if metric is not None and groups and not any(metric in qualities(group) for group in groups):
        names = qualities(groups[0])
        raise invalid("metric", f"one of {', '.join(names)}", metric, names)
    # A group without the metric is judged by its own.
    return [recommend(group, limits, metric if metric in qualities(group) else None) for group in groups]


def _page_of(recommendations: Sequence[Recommendation], folder: Path | None) -> str:
    """Return the page of some groups, a section for each."""
    groups = [found.group for found in recommendations]
    panels: dict[str, Panel] = {}
    sections = ""
    for number, found in enumerate(recommendations):
        own = {f"{panel.name}-{number}": panel for panel in focused(make_panels(found.group), found)}
        sections += _section(number, found, own, folder)
        panels |= own
    title = " and ".join(dict.fromkeys(group.title for group in groups)) or "nothing"
    body = f"""{_tabs(groups)}
{sections or '<p class="card">There are no records.</p>'}
{_footer(groups)}"""
    return make_document(title, body, panels)


def make_document(title: str, body: str, panels: Mapping[str, Panel]) -> str:
    """Return a whole page with its styles, scripts and figures inside.

    Args:
        title: Its head, as plain text.
        body: Everything below, as HTML.
        panels: The figures by the identifiers of their places in the body.
    """
    assets = files("pluribus.report") / "assets"
    style = (assets / "page.css").read_text(encoding="utf-8")
    script = (assets / "page.js").read_text(encoding="utf-8")
    title = escaped(title)
    return f"""<!doctype html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>Pluribus: {title}</title>
<style>{style}</style>
</head>
<body>
<main>
<header class="top"><h1>{title}</h1><button id="theme" type="button">Dark</button></header>
{body}
</main>
<div id="tip" role="tooltip" hidden></div>
<script type="application/json" id="figures">{_json(panels)}</script>
<script>{get_plotlyjs()}</script>
<script>{script}</script>
</body>
</html>
"""


def write_page(
    folder: Path, groups: Sequence[Group], limits: tuple[Limit, ...] = (), metric: str | None = None
) -> Path:
    """Write the page into a folder, and beside it the run that it recommends; return its path."""
    found = _recommend_all(groups, limits, metric)
    page = _page_of(found, folder)
    with replacing(folder / FILE) as unfinished:
        write_words(unfinished, page)
    # Of several tasks there is no one run to take.
    write_choice(folder, found[0] if len(found) == 1 else None)
    return folder / FILE


def _section(number: int, found: Recommendation, panels: Mapping[str, Panel], folder: Path | None) -> str:
    """Return the part of the page about one group; all but the first are hidden until their tab is chosen."""
    group = found.group
    prices = make_price_list(group, found.judge.name if found.judge else None)
    parts = (
        answer_card(found, prices),
        missing_card(missing(group)),
        defects_card(found_defects(group)),
        table_card(make_table(group), found),
        *(panel_card(name, panel, found) for name, panel in panels.items()),
        wall_card(read_wall(found.choice) if found.choice else None),
        maps_card(found.choice),
        use_card(found, folder),
    )
    hidden = " hidden" if number else ""
    facts = "; ".join(filter(None, (group.sizes, group.training)))
    intro = f'<p class="quiet small">{escaped(facts)}</p>' if facts else ""
    return f'<section id="group-{number}" role="tabpanel"{hidden}>{intro}{"".join(parts)}</section>'


def _tabs(groups: Sequence[Group]) -> str:
    """Return a tab for each of several groups."""
    if len(groups) < 2:
        return ""
    buttons = ""
    for number, group in enumerate(groups):
        # One tab is reached by the tab key, the others by the arrow keys, as the role `tablist` wants it.
        selected, tabindex = ("false", -1) if number else ("true", 0)
        buttons += (
            f'<button type="button" role="tab" aria-controls="group-{number}" '
            f'aria-selected="{selected}" tabindex="{tabindex}">'
            f"{escaped(group.title)}</button>"
        )
    told = "These records are of different tasks or networks, which are not compared with one another."
    return f'<div class="tabs" role="tablist">{buttons}</div><p class="quiet small">{told}</p>'


def _footer(groups: Sequence[Group]) -> str:
    """Return how many runs there are, and which versions made them."""
    records = [run for group in groups for run in group.records]
    versions: dict[str, None] = {}
    for run in records:
        versions |= dict.fromkeys(f"{name} {version}" for name, version in run.versions.items())
    told = f"{len(records)} runs. {', '.join(versions)}. " if records else ""
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    return f"<footer>{escaped(told)}Made by Pluribus on {day}; everything is in this file.</footer>"


def _json(panels: Mapping[str, Panel]) -> str:
    """Return the figures for the script."""
    found: dict[str, Any] = {}
    for name, panel in panels.items():
        figures = {}
        for options, drawn in panel.figures.items():
            figures[_key(options)] = drawn.to_plotly_json()
            # The page brings its own colours, in light and in dark.
            figures[_key(options)]["layout"].pop("template", None)
        found[name] = {"figures": figures}
    # Text of a figure such as `</script>` must not end the element.
    return json.dumps(found, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _key(options: tuple[str, ...]) -> str:
    """Return the chosen options as the script writes them."""
    return json.dumps(options, separators=(",", ":"), ensure_ascii=False)
