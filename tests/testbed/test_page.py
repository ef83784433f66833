"""The page: the table has every method, the best in bold, and references are never the best."""

import math

from pluribus.report.columns import Cell as Number
from pluribus.testbed.cells import Cell
from pluribus.testbed.page import make_lines, make_page, show, told, write_page
from pluribus.testbed.protocol import Protocol
from pluribus.testbed.results import Result


def make_results():
    found = []
    for noise in (0.1, 1.0):
        for seed in (0, 1):
            for method, score in (("swag", 3.0), ("emp", 1.0), ("exact_posterior", 0.01)):
                scores = {"code": score + seed, "printed": 2 * score}
                found.append(Result(method, Cell(10, 1, noise), seed, {}, scores, 0.5))
    return found


def test_lines_are_best_first_with_both_directions():
    lines = make_lines(make_results(), Protocol())
    assert [line.label for line in lines] == ["exact_posterior", "emp", "swag"]
    assert list(lines[0].numbers) == [
        *("KL(posterior ‖ model)", "at ε=0.1", "at ε=1", "KL(model ‖ posterior)", "joint KL of pairs")
    ]
    assert lines[1].numbers["KL(posterior ‖ model)"].mean == 1.5
    assert next(iter(make_lines(make_results(), Protocol(direction="printed"))[0].numbers)).startswith(
        "KL(model"
    )


def test_the_page_marks_the_best_method():
    page = make_page(make_results(), Protocol())
    assert "Means over 2 cells with 2 seeds each: 4 problems" in page
    assert '<td data-value="1.5" class=best>1.500' in page
    assert '<tr class="quiet"><th scope="row" data-value="exact_posterior">' in page


def test_a_page_without_results_says_so(tmp_path):
    path = write_page(tmp_path / "new", [], Protocol())
    assert "There are no results." in path.read_text(encoding="utf-8")
    assert told([]) == "There are no results."


def test_numbers_have_errors_where_these_are_known():
    assert show(Number(1.0, 0.25)) == "1.000 ± 0.250"
    assert show(Number(1234.5, math.nan)) == "1234"
    assert show(Number(math.nan, math.nan)) == "–"
