"""The site's code runs as it stands, its numbers are those that were measured, and its pages are in reach."""

import json
import math
import re
import sys
from pathlib import Path
from statistics import fmean, stdev

import pytest

from pluribus import methods
from pluribus.settings import snake_case

ROOT = Path(__file__).parent.parent
PAGES = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in ROOT.glob("docs/**/*.md")}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
CODE = {name: list(BLOCK.finditer(text)) for name, text in PAGES.items()}
FILES = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in (ROOT / "benchmarks" / "results").glob("*.json")
}
RESULTS = [FILES["digits"]["runs"]]
SLOW = (
    "docs/howto/sklearn.md",
    "docs/howto/text.md",
    "docs/howto/segmentation.md",
    "docs/howto/huggingface.md",
)
"""Pages that train for longer than three seconds."""
MEASURED = re.compile(r"\d\.\d{3}±\d\.\d{3}")


def shown(runs):
    """Every number of a method's runs as pages show it: mean ± standard error over seeds."""
    columns = [[run[name] for run in runs] for name in runs[0]]
    return {f"{fmean(values):.3f}±{stdev(values) / math.sqrt(len(values)):.3f}" for values in columns}


def marked(page):
    marks = [pytest.mark.slow] if page in SLOW else []
    if page.startswith("docs/howto/"):
        # Other packages warn of devices, workers and of each other.
        marks.append(pytest.mark.filterwarnings("ignore"))
    return pytest.param(page, marks=marks)


@pytest.mark.parametrize("page", [marked(name) for name, blocks in CODE.items() if blocks])
def test_the_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in CODE[page]:
        lines_before = "\n" * PAGES[page][: block.start(1)].count("\n")  # an error names the line of the page
        exec(compile(lines_before + block[1], page, "exec"), namespace)  # each goes on from the last one


def test_every_method_page_has_code_that_runs():
    for name in methods.__all__:
        assert CODE[f"docs/methods/{snake_case(name)}.md"], name


@pytest.mark.parametrize("name", [name for name in methods.__all__ if name != "Single"])
def test_search_finds_a_method_by_the_title_of_its_paper(name):
    source = sys.modules[getattr(methods, name).__module__].__doc__
    titles = [plain(title) for title in re.findall(r'"([^"]+)"', source)]
    page = plain(PAGES[f"docs/methods/{snake_case(name)}.md"])
    # Short quotes are words of the text, or settings.
    wanted = [titles[0], *(title for title in titles if len(title) > 25)]
    assert [title for title in wanted if title not in page] == []


def plain(text):
    """Return text in small letters with single blanks."""
    return " ".join(text.lower().split())


@pytest.mark.parametrize(
    "word", ["onnx", "dataloader", "segmentation", "gpu", "tokenizer", "csv", "lightning"]
)
def test_search_finds_a_page_by_what_people_look_for(word):
    # The site's search finds whole words of the text outside of links.
    found = [name for name, text in PAGES.items() if re.search(rf"\b{word}\b", text, re.IGNORECASE)]
    assert found


@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if MEASURED.search(text)])
def test_measured_numbers_are_those_of_the_results(page):
    known = {number for runs in RESULTS for of_method in runs.values() for number in shown(of_method)}
    known |= set(MEASURED.findall(json.dumps(FILES, ensure_ascii=False)))
    assert set(MEASURED.findall(PAGES[page])) <= known


def test_every_claim_says_where_it_is_shown():
    rows = re.findall(r"^\| (.*) \|$", PAGES["docs/claims.md"], re.MULTILINE)
    for row in rows:
        paper, *_, shown_by = row.split(" | ")
        if paper == "paper":
            # The head of a table.
            continue
        assert row.count(" | ") == 3, paper
        assert "`" in shown_by, paper
        assert all((ROOT / place).exists() for place in re.findall(r"[\w/]+\.py", shown_by)), paper


def test_measured_numbers_stand_in_the_row_of_their_method():
    rows = re.findall(r"^\| `([^`]+)` \| (.*\d±\d.*)$", PAGES["docs/choosing.md"], re.MULTILINE)
    assert {label for label, _ in rows} == set(RESULTS[0])
    for label, cells in rows:
        known = {number for runs in RESULTS if label in runs for number in shown(runs[label])}
        assert set(MEASURED.findall(cells)) <= known, label


def test_costs_are_means_over_all_seeds():
    rows = re.findall(
        r"^\| `([^`]+)` \|.*± ?.*\| ([\d.]+) \| ([\d.]+) \|$", PAGES["docs/choosing.md"], re.MULTILINE
    )
    assert {label for label, *_ in rows} == set(RESULTS[0])
    for label, *costs in rows:
        for cost, name in zip(costs, ("parameters_ratio", "multiply_adds_ratio"), strict=True):
            mean = fmean(run[name] for run in RESULTS[0][label])
            assert float(cost) == pytest.approx(mean, abs=0.0051), (label, name)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_in_the_navigation(page):
    assert f": {page.removeprefix('docs/')}\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_the_table_of_defaults_is_that_of_the_runs():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from defaults import read_runs, table
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    rows = table(read_runs("papers")).splitlines()
    assert len(rows) == 13
    missing = [row for row in rows[2:] if row not in PAGES["docs/choosing.md"]]
    assert missing == []


def test_the_page_of_speed_is_made_of_what_was_measured(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import speed
    import speed_page

    written = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    (tmp_path / "speed.md").write_text(written, encoding="utf-8")
    monkeypatch.setattr(speed_page, "PAGE", tmp_path / "speed.md")
    monkeypatch.setattr(speed_page, "FIGURES", tmp_path / "speed")
    speed.write_tables(FILES["speed"]["cells"])
    assert (tmp_path / "speed.md").read_text(encoding="utf-8") == written
    pictures = sorted((tmp_path / "speed").iterdir())
    assert pictures
    for picture in pictures:
        drawn = ROOT / "docs" / "speed" / picture.name
        assert picture.read_text(encoding="utf-8") == drawn.read_text(encoding="utf-8")
