"""The page: one HTML file with everything inside, to open, to understand in a minute, and to send on."""

import html
import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from plotly.graph_objects import Figure
from plotly.io import write_images
from plotly.offline import get_plotlyjs

from pluribus.errors import SettingError
from pluribus.metrics import METRICS
from pluribus.report.budget import Limit
from pluribus.report.defects import found_defects
from pluribus.report.figures import make_panels
from pluribus.report.figures.drawing import Panel, Selector
from pluribus.report.figures.reliability import ALL
from pluribus.report.gallery import Picture, Wall, read_wall
from pluribus.report.groups import Group
from pluribus.report.missing import missing
from pluribus.report.recommendation import Recommendation, Rival, qualities, recommend
from pluribus.report.tables import Cell, Column, Table, make_table
from pluribus.settings import invalid

BELOW = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
"""The legend of a figure as a file: below the title of its axis."""
FILE = "report.html"

GLOSSARY = {
    **{row.title: row.explanation for row in METRICS.values() if row.against == "target"},
    "mutual information": "How far the members disagree, in nats: 0 where all say the same. It is the part "
    "of the uncertainty that more data could remove.",
    "entropy": "How spread out the predicted probabilities are, in nats: 0 where one class is certain.",
    "AUROC": "How often a sample of another kind looks stranger than a test sample: 1 always, 0.5 by chance.",
    "95 % interval": "Test samples and seeds were drawn again a thousand times; 95 % of the differences lay "
    "in it. Where it holds 0, chance may have made the difference.",
    "standard error": "How far the mean over seeds may be from that of many seeds; ± in the table.",
    "coverage": "The share of samples that are answered, the surest first.",
}
"""What a term means; found under it wherever it stands in running text."""
TERMS = re.compile(
    r"(?<!\w)("
    + "|".join(re.escape(html.escape(t)) for t in sorted(GLOSSARY, key=len, reverse=True))
    + r")(?!\w)"
)


def make_page(groups: Sequence[Group], limits: tuple[Limit, ...] = (), metric: str | None = None) -> str:
    """The whole page.

    Args:
        groups: What `group_records` made of records read with their outcomes.
        limits: The budget.
        metric: What to judge by where a group has it.
    """
    if metric is not None and groups and not any(metric in qualities(group) for group in groups):
        names = qualities(groups[0])
        raise invalid("metric", f"one of {', '.join(names)}", metric, names)
    panels: dict[str, Panel] = {}
    sections = [_section(number, group, limits, metric, panels) for number, group in enumerate(groups)]
    assets = files("pluribus.report") / "assets"
    style, script = ((assets / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    title = _text(" and ".join(dict.fromkeys(group.title for group in groups)) or "nothing")
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
{_tabs(groups)}
{"".join(sections) or '<p class="card">There are no records.</p>'}
{_footer(groups)}
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
    """Writes the page into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(make_page(groups, limits, metric), encoding="utf-8")
    return folder / FILE


def check_figures() -> None:
    """Refuses figures as files where nothing can draw them: to be asked before anything is written."""
    if find_spec("kaleido") is None:
        raise SettingError(
            "figures are saved by kaleido, however: it is not installed. "
            "Install pluribus with the extra figures."
        )
    from choreographer.browsers.chromium import Chromium

    if not Chromium.find_browser(skip_local=False):
        raise SettingError(
            "figures are saved by kaleido in a Chromium or Chrome, however: neither was found. Install one."
        )


def write_figures(folder: Path, groups: Sequence[Group]) -> list[Path]:
    """Every figure as it is first shown, as PNG and SVG, or none; needs kaleido and a Chromium."""
    check_figures()
    names, drawn = [], []
    for number, group in enumerate(groups):
        stem = f"{number}-" if len(groups) > 1 else ""
        for panel in make_panels(group):
            first = Figure(panel.first).update_layout(template="plotly_white", margin={"t": 40}, legend=BELOW)
            for ending in ("png", "svg"):
                drawn.append(first)
                names.append(f"{stem}{panel.name}.{ending}")
    with TemporaryDirectory() as made:
        try:
            write_images(fig=drawn, file=[Path(made, one) for one in names], width=800, height=500, scale=2)
        except Exception as error:  # kaleido and the browser have many
            raise SettingError(
                f"figures are saved by kaleido in a Chromium or Chrome, however: {error!r}. "
                "The page shows the same figures."
            ) from error
        folder.mkdir(parents=True, exist_ok=True)
        for one in names:
            shutil.copy(Path(made, one), folder)
    return [folder / one for one in names]


def _section(
    number: int, group: Group, limits: tuple[Limit, ...], metric: str | None, panels: dict[str, Panel]
) -> str:
    found = recommend(group, limits, metric if metric in qualities(group) else None)
    wall = read_wall(found.choice) if found.choice else None
    table = make_table(group)
    own = {f"{panel.name}-{number}": panel for panel in make_panels(group)}
    panels.update(own)
    parts = (
        _answer(found),
        _missing(missing(group)),
        _findings(found_defects(group)),
        _table(table, found) if table.rows else "",
        *(_panel(name, panel, found) for name, panel in own.items()),
        _gallery(wall) if wall else "",
    )
    hidden = " hidden" if number else ""
    facts = "; ".join(filter(None, (group.sizes, group.training)))
    told = f'<p class="quiet small">{_text(facts)}</p>' if facts else ""
    return f'<section id="group-{number}" role="tabpanel"{hidden}>{told}{"".join(parts)}</section>'


def _tabs(groups: Sequence[Group]) -> str:
    if len(groups) < 2:
        return ""
    buttons = "".join(
        f'<button type="button" role="tab" aria-controls="group-{number}" '
        f'aria-selected="{str(not number).lower()}" tabindex="{-1 if number else 0}">'
        f"{_text(group.title)}</button>"
        for number, group in enumerate(groups)
    )
    told = "These records are of different tasks or networks, which are not compared with one another."
    return f'<div class="tabs" role="tablist">{buttons}</div><p class="quiet small">{told}</p>'


def _answer(found: Recommendation) -> str:
    said = "".join(f"<li>{_explained(sentence)}</li>" for sentence in found.sentences)
    rows = "".join(_rival(found, rival) for rival in found.rivals)
    table = ""
    if rows and found.choice is not None and found.judge is not None:
        title = _term(found.judge.title, found.judge.explanation)
        own = _shown(found.judge.cell(found.choice), found.judge)
        table = (
            '<details open><summary>The numbers behind it</summary><div class="scroll"><table><thead><tr>'
            f"<th>configuration</th><th>{title}</th><th>verdict</th><th>difference</th>"
            f"<th>{_glossed('95 % interval')}</th></tr></thead><tbody>"
            f'<tr class="chosen"><th scope="row">{_label(found.choice.label)}</th>'
            f"<td>{own}</td><td></td><td></td><td></td></tr>{rows}</tbody></table></div></details>"
        )
    return f'<div class="card answer"><h2>{_label(found.title)}</h2><ul>{said}</ul>{table}</div>'


def _rival(found: Recommendation, rival: Rival) -> str:
    gap, judge = rival.gap, found.judge
    quality = _shown(rival.cell, judge) if judge else ""
    cells = "<td>–</td><td>–</td>"
    if gap is not None and judge is not None:
        ends = (f"{one:+.{judge.digits}f}".replace("-", "−") for one in (gap.value, gap.low, gap.high))
        value, low, high = ends
        cells = f"<td>{value}</td><td>{low} to {high}</td>"
    kind = rival.verdict.split()[0]
    return (
        f'<tr><th scope="row">{_label(rival.entry.label)}</th><td>{quality}</td>'
        f'<td class="verdict-{kind}">{rival.verdict}</td>{cells}</tr>'
    )


def _missing(sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    said = "".join(f"<li>{_explained(sentence)}</li>" for sentence in sentences)
    return f'<div class="card missing"><h2>What is missing</h2><ul>{said}</ul></div>'


def _findings(sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    listed = "".join(f"<li>{_text(sentence)}</li>" for sentence in sentences)
    return f'<div class="card findings"><h2>What looks wrong</h2><ul>{listed}</ul></div>'


def _table(table: Table, found: Recommendation) -> str:
    heads = "".join(
        f'<th scope="col" data-first="{"ascending" if column.lower_is_better else "descending"}">'
        f'<button type="button" data-tip="{_text(column.explanation)}">{_text(column.title)} '
        f"{'↓' if column.lower_is_better else '↑'}</button></th>"
        for column in table.columns
    )
    chosen = found.choice.label if found.choice else None
    rows = "".join(
        f'<tr{" class=chosen" if label == chosen else ""}><th scope="row" data-value="{_text(label)}">'
        f"{_label(label)}</th>{''.join(map(_cell, cells, table.columns))}</tr>"
        for label, cells in table.rows.items()
    )
    return (
        '<div class="card"><h2>All numbers</h2><p class="quiet small">Means over seeds '
        f"± {_glossed('standard error')}; ↓ lower is better, ↑ higher is better, bold is best, "
        "★ is recommended. Choose a head to sort by it.</p>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="All numbers"><table class="sortable">'
        f'<thead><tr><th scope="col"><button type="button">configuration</button></th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></div>"
    )


def _cell(cell: Cell, column: Column) -> str:
    value = "" if math.isnan(cell.mean) else f"{cell.mean:.6g}"
    best = " class=best" if cell.best else ""
    return f'<td data-value="{value}"{best}>{_shown(cell, column)}</td>'


def _shown(cell: Cell, column: Column) -> str:
    mean, _, error = cell.show(column.digits).partition("±")
    return f'{mean}<span class="error"> ± {error}</span>' if error else mean


def _panel(name: str, panel: Panel, found: Recommendation) -> str:
    choices = "".join(_selector(one, found) for one in panel.selectors)
    return (
        f'<div class="card"><h2>{_text(panel.title)}</h2>'
        f'<p class="quiet small">{_explained(panel.caption)}</p>'
        f'<div class="choices">{choices}</div><div class="figure">'
        f'<div class="plot" id="{name}" tabindex="0" role="img" aria-label="{_text(panel.title)}"></div>'
        '<p class="absent quiet" hidden>This was not measured.</p>'
        '<details class="numbers"><summary>As numbers</summary><div class="scroll"></div></details>'
        "</div></div>"
    )


def _selector(selector: Selector, found: Recommendation) -> str:
    """The first option is chosen; one recommended configuration rather than the first."""
    chosen = found.choice.label if found.choice and selector.options[0] != ALL else selector.options[0]
    options = "".join(
        f'<option value="{_text(option)}"{" selected" if option == chosen else ""}>{_text(option)}</option>'
        for option in selector.options
    )
    return f"<label>{_text(selector.name)} <select>{options}</select></label>"


def _gallery(wall: Wall) -> str:
    parts = (("Least sure", wall.least), ("Most sure", wall.most))
    lists = "".join(
        f'<h3>{title}</h3><ul class="gallery">{"".join(map(_picture, pictures))}</ul>'
        for title, pictures in parts
    )
    return (
        f'<div class="card"><h2>What it is sure of</h2><p class="quiet small">Test images by the '
        f"{_glossed('entropy')} of {_text(wall.label)}, seed {wall.seed}, with its answer and the share of "
        f"members that vote for each class. A red frame marks a wrong answer.</p>{lists}</div>"
    )


def _picture(picture: Picture) -> str:
    votes = "".join(
        f'<div class="vote{" right" if name == picture.truth else ""}"><span>{_text(name)}</span>'
        f'<i style="width:{share:.0%}"></i><span>{share:.0%}</span></div>'
        for name, share in picture.said[:3]
    )
    wrong = " class=wrong" if picture.answer != picture.truth else ""
    truth = "" if picture.answer == picture.truth else f", is <b>{_text(picture.truth)}</b>"
    return (
        f'<li{wrong}><img src="{picture.address}" alt="test image {picture.index}, {_text(picture.truth)}">'
        f"<div>{picture.confidence:.0%} sure of <b>{_text(picture.answer)}</b>{truth}</div>{votes}</li>"
    )


def _footer(groups: Sequence[Group]) -> str:
    records = [run for group in groups for run in group.records]
    versions = dict.fromkeys(f"{name} {version}" for run in records for name, version in run.versions.items())
    told = f"{len(records)} runs. {', '.join(versions)}. " if records else ""
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    return f"<footer>{_text(told)}Made by Pluribus on {day}; everything is in this file.</footer>"


def _json(panels: Mapping[str, Panel]) -> str:
    """The figures for the script; `<` is written so that no text can end the element."""
    found = {
        name: {"figures": {_key(key): drawn.to_plotly_json() for key, drawn in panel.figures.items()}}
        for name, panel in panels.items()
    }
    for panel in found.values():
        for drawn in panel["figures"].values():
            drawn["layout"].pop("template", None)
    return json.dumps(found, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _key(options: tuple[str, ...]) -> str:
    """What is chosen, as the script writes it."""
    return json.dumps(options, separators=(",", ":"), ensure_ascii=False)


def _explained(text: str) -> str:
    """Running text with its terms explained, each where it first stands."""
    seen: set[str] = set()

    def explain(found: re.Match[str]) -> str:
        term = html.unescape(found[0])
        if term in seen:
            return found[0]
        seen.add(term)
        return _term(term, GLOSSARY[term])

    return TERMS.sub(explain, _text(text))


def _term(name: str, meaning: str) -> str:
    return f'<span class="term" tabindex="0" data-tip="{_text(meaning)}">{_text(name)}</span>'


def _glossed(name: str) -> str:
    return _term(name, GLOSSARY[name])


def _label(value: str) -> str:
    """A name that may be broken where its words end."""
    return _text(value).replace("_", "_<wbr>").replace("(", "<wbr>(")


def _text(value: str) -> str:
    return html.escape(value, quote=True)
