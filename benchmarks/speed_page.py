"""The tables and figures of docs/speed.md, made of `benchmarks/results/speed.json`.

`python benchmarks/speed.py --page` calls this.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "speed.md"
FIGURES = DOCS / "speed"
START, END = "<!-- speed -->", "<!-- end of speed -->"

ENGINES = {
    "unfrozen": "unfrozen",
    "frozen": "frozen",
    "inductor": "torch.compile",
    "onnxruntime": "onnxruntime",
    "openvino": "OpenVINO",
    "torch_uncertainty": "torch-uncertainty",
}
"""By name in the results, the name on the page."""
# Colours that stay apart for colour-blind readers (Okabe and Ito).
COLOURS = {
    "unfrozen": "#999999",
    "frozen": "#0072b2",
    "inductor": "#e69f00",
    "onnxruntime": "#009e73",
    "openvino": "#cc79a7",
    "torch_uncertainty": "#d55e00",
}
Cells = Mapping[str, Mapping[str, Any]]


def write_page(cells: Cells, networks: Mapping[str, Sequence[int]], methods: Sequence[str]) -> None:
    """Write tables and figures between the marks of the page.

    Args:
        cells: By `network/method/engine/batch`, a measurement or a refusal.
        networks: By name, the batch sizes.
        methods: In the order of the rows.
    """
    parts = list[str]()
    for network, batches in networks.items():
        for batch in batches:
            rows = _rows(cells, network, batch, methods)
            if not rows:
                continue
            heading = f"{network}, batch {batch}"
            FIGURES.mkdir(exist_ok=True)
            name = f"{network}_{batch}.svg"
            (FIGURES / name).write_text(draw(heading, rows), encoding="utf-8")
            picture = f"![Ratios of {heading}, beside their bounds](speed/{name})"
            parts += [f"### {heading}", picture, _ratios(rows)]
        parts += _preparation(cells, network, batches, methods)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    after = rest.partition(END)[2]
    PAGE.write_text("\n\n".join([before + START, *parts, END + after]), encoding="utf-8")


def _rows(cells: Cells, network: str, batch: int, methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return by method the measurements of all engines; methods without any are left out."""
    rows = dict[str, dict[str, Any]]()
    for method in methods:
        found = {name: cells.get(f"{network}/{method}/{name}/{batch}") for name in ENGINES}
        row = {name: cell for name, cell in found.items() if cell is not None}
        if row:
            rows[method] = row
    return rows


def _newest(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return one measurement of a row; frozen, if there is one."""
    return row["frozen"] if "frozen" in row else next(iter(row.values()))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def _ratios(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of ratios of one network and batch, with the engines that were measured."""
    engines = [name for name in ENGINES if any(name in row for row in rows.values())]
    lines = list[list[str]]()
    for method, row in rows.items():
        some = _newest(row)
        numbers = [_shown(row.get(name)) for name in engines]
        lines.append([f"`{method}`", str(some["members"]), f"{some['bound']:.2f}", *numbers])
    return _table(["method", "members", "bound", *(ENGINES[name] for name in engines)], lines)


def _shown(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    if "left_out" in cell:
        return "left out"
    return "refused" if "refused" in cell else f"{cell['ratio']:.2f}"


def _preparation(cells: Cells, network: str, batches: Sequence[int], methods: Sequence[str]) -> list[str]:
    """Return the table of times before the first prediction, and of memory, under its heading."""
    lines = list[list[str]]()
    for method in methods:
        cell = next(
            (cells[key] for batch in batches if (key := f"{network}/{method}/frozen/{batch}") in cells), None
        )
        if cell is None:
            continue
        seconds = [f"{cell['convert_seconds']:.2f}", f"{cell['freeze_seconds']:.2f}"]
        first = f"{cell['first_call_seconds'] * 1e3:.1f}"
        memory = [f"{cell[name] / 2**20:.2f}" for name in ("weight_bytes", "peak_activation_bytes")]
        lines.append([f"`{method}`", *seconds, first, *memory])
    if not lines:
        return []
    heads = ["method", "convert, s", "freeze, s", "first call, ms", "weights, MiB", "activations, MiB"]
    return [f"### {network}, preparation and memory", _table(heads, lines)]


def draw(title: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a figure (SVG): a line for each method, its bound as a bar, a dot for each engine.

    Args:
        title: Of the figure.
        rows: By method and engine, the measurements.
    """
    left, width, step, top = 170, 520, 22, 62
    shown = {method: {k: c["ratio"] for k, c in row.items() if "ratio" in c} for method, row in rows.items()}
    bounds = {method: _newest(row)["bound"] for method, row in rows.items()}
    numbers = [1.0, *bounds.values(), *(ratio for row in shown.values() for ratio in row.values())]
    low, high = math.floor(math.log10(min(numbers)) * 4) / 4, math.log10(max(numbers)) + 0.05

    def across(ratio: float) -> float:
        return left + (math.log10(ratio) - low) / (high - low) * width

    bottom = top + step * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 30} {bottom + 44}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{left}" y="18" font-size="14" font-weight="bold">{escape(title)}</text>',
        *_legend(left, [name for name in ENGINES if any(name in row for row in shown.values())]),
    ]
    for tick in (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        if low <= math.log10(tick) <= high:
            x = across(tick)
            parts.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="#e3e3e3"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>')
    for place, (method, row) in enumerate(shown.items()):
        y = top + step * (place + 0.5)
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(method)}</text>')
        parts.append(_bar(across(bounds[method]), y))
        for name, ratio in row.items():
            parts.append(f'<circle cx="{across(ratio):.1f}" cy="{y:.1f}" r="4.5" fill="{COLOURS[name]}"/>')
    words = "processor time, the plain network in the same engine being 1"
    parts.append(f'<text x="{left + width / 2}" y="{bottom + 36}" text-anchor="middle">{words}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(x: float, y: float) -> str:
    """Return the mark of a bound."""
    ends = f'x1="{x:.1f}" y1="{y - 8:.1f}" x2="{x:.1f}" y2="{y + 8:.1f}"'
    return f'<line {ends} stroke="#000" stroke-width="2.5"/>'


def _legend(left: int, engines: Sequence[str]) -> list[str]:
    """Return the legend, a line below the title."""
    parts = [_bar(left + 4, 41), f'<text x="{left + 12}" y="45">bound</text>']
    x = left + 68
    for name in engines:
        label = ENGINES[name]
        parts.append(f'<circle cx="{x}" cy="41" r="4.5" fill="{COLOURS[name]}"/>')
        parts.append(f'<text x="{x + 9}" y="45">{escape(label)}</text>')
        x += 30 + 6.5 * len(label)
    return parts
