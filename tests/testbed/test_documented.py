"""The page of the testbed has the numbers that were measured."""

import json
import re
from pathlib import Path
from statistics import fmean

import pytest

from pluribus.testbed.page import show
from pluribus.testbed.presets import VARIANTS
from pluribus.testbed.protocol import Protocol
from pluribus.testbed.results import read_results
from pluribus.testbed.summary import by_cell, mean_over_cells, rows_of, summarise

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testbed.md").read_text(encoding="utf-8")
CLAIMS = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
NOISES = (0.01, 0.1, 1.0)


@pytest.fixture(scope="module")
def results():
    return read_results(ROOT / "benchmarks" / "results" / "testbed.jsonl", Protocol())


def test_the_whole_grid_was_run_for_all_methods(results):
    problems = {(result.cell, result.seed) for result in results}
    assert len(problems) == 2 * 3 * 3 * 10
    assert len(results) == len(problems) * len({result.method for result in results})


def test_every_row_of_the_table_is_that_of_the_results(results):
    rows = {row.label: row for row in rows_of(results)}
    lines = re.findall(r"^\| ([\w ,()]+) \| (\d.*?) \|$", PAGE, re.MULTILINE)
    labels = [label.lower().replace(" (30)", "").replace(", ", ",").replace(" ", "_") for label, _ in lines]
    assert {label.replace(",", ", ") for label in labels} == set(rows)
    for label, (_, cells) in zip(labels, lines, strict=True):
        row = rows[label.replace(",", ", ")]
        parts = [
            results,
            *([one for one in results if one.cell.inputs == inputs] for inputs in (10, 100)),
            *([one for one in results if one.cell.noise == noise] for noise in NOISES),
        ]
        expected = [show(summarise(part, row, "code")) for part in parts]
        expected.append(show(summarise(results, row, "printed")))
        own = [one for one in results if one.method == row.method]
        ranked = row.label != row.method
        expected.append("–" if ranked else show(mean_over_cells(by_cell(own, lambda one: one.joint))))
        assert cells.split(" | ") == expected, label


def test_facts_are_those_that_were_measured():
    path = ROOT / "benchmarks" / "results" / "testbed_facts.json"
    kept = json.loads(path.read_text(encoding="utf-8"))
    page = " ".join(PAGE.split())
    assert f"in {kept['processor seconds of training']} seconds of processor time" in page
    wins = [fact.split(" of ")[0] for fact in kept["facts"].values()]
    assert "in {} of 21 problems for K = 3 and in {} for K = 5".format(*wins) in page
    assert "is {} of 125, and better than all in {};".format(*wins[2:]) in page
    assert f"far off ({wins[4]})" in page
    assert "(in {} of 21); ranked members are better than 30 networks in {}.".format(*wins[5:]) in page


def test_the_authors_baselines_have_the_scores_that_were_measured(results):
    path = ROOT / "benchmarks" / "results" / "testbed_variants.jsonl"
    found = read_results(path, Protocol())
    names = {one.method for one in found}
    assert names <= {"hypermodel", *VARIANTS}
    having = [{one.key[1:] for one in found if one.method == name} for name in names]
    problems = set.intersection(*having)
    some = [one for one in [*results, *found] if one.key[1:] in problems]
    rows = {row.label: row for row in rows_of(some)}
    lines = re.findall(r"^\| `([\w, ]+)` \| (\d.*?) \|$", PAGE, re.MULTILINE)
    assert names < {label for label, _ in lines}
    for label, cells in lines:
        parts = [
            some,
            *([one for one in some if one.cell.inputs == inputs] for inputs in (10, 100)),
            *([one for one in some if one.cell.noise == noise] for noise in NOISES),
        ]
        assert cells.split(" | ") == [show(summarise(part, rows[label], "code")) for part in parts], label
    of = {label: show(summarise(some, row, "code")) for label, row in rows.items()}
    verdict = "{} ranked (K = 5), {} hypermodel as its authors have it, {} VNN, {} Bayes by Backprop".format(
        *(of[name] for name in ("layer_ensembles_5, ranked", *VARIANTS[2:], VARIANTS[1]))
    )
    assert verdict in CLAIMS
    assert f"on {len(problems)} problems" in CLAIMS


def test_claims_of_figures_2_and_4_are_those_of_the_results(results):
    found = {(one.method, one.cell, one.seed): one for one in results}
    problems = [(one.cell, one.seed) for one in results if one.method == "deep_ensembles"]
    deep = [found["deep_ensembles", *problem] for problem in problems]
    wins, better, means = [], [], {}
    for options in (2, 3, 5, 6):
        layers = [found[f"layer_ensembles_{options}", *problem] for problem in problems]
        pairs = list(zip(layers, deep, strict=True))
        wins.append(sum(one.scores["code"] < other.random[options]["code"] for one, other in pairs))
        better.append(sum(one.ranked[one.best]["code"] < one.scores["code"] for one in layers))
        means[options] = fmean(one.best for one in layers)
    assert "in {}, {}, {} and {} of 180 problems for K = 2, 3, 5 and 6".format(*wins) in CLAIMS
    assert better == [0, 112, 166, 173]
    assert "in 166 problems for K = 5, in 173 for K = 6, in 112 for K = 3 and in none for K = 2" in PAGE
    assert f"{means[3]:.0f}, {means[5]:.0f} and {means[6]:.0f} on average of 27, 125 and 216" in CLAIMS
    layers = [found["layer_ensembles_5", *problem] for problem in problems]
    twenty = fmean(one.ranked[20]["code"] for one in layers)
    best = fmean(one.ranked[one.best]["code"] for one in layers)
    assert f"({twenty:.3f} against {best:.3f})" in CLAIMS
