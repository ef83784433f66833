"""The page on trained networks has the numbers that were measured."""

import json
import re
from pathlib import Path
from statistics import fmean, stdev

import pytest

from pluribus.settings import snake_case

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "trained_network.md").read_text(encoding="utf-8")
PROMISES = {"kept": "kept", "approximate": "nearly kept", "retrain": "to be trained"}


def read(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))["runs"]


def rows_of(start, end):
    part = PAGE[PAGE.index(start) :]
    lines = part[: part.index(end)].splitlines()
    return [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")][
        1:
    ]


def spread(values):
    return stdev(values) / len(values) ** 0.5


def test_every_row_of_the_small_network_is_that_of_the_results():
    runs = read("trained")
    alone = [run["converted"] for run in runs if run["name"] == "single"]
    rows = rows_of("## Measured", "- No method that keeps")
    assert len(rows) == 21
    for label, untuned, before, tuned, *cells in rows:
        own = [run for run in runs if run["name"] == snake_case(label.split(",")[0])]
        assert len(own) == 3
        first, after = own[0], [run["tuned"] for run in own]
        assert (untuned, tuned) == (PROMISES[first["promise"]], PROMISES[first["tuned promise"]]), label
        assert before == f"{fmean(run['converted']['nll'] for run in own):.3f}", label
        change = [one["nll"] - other["nll"] for one, other in zip(after, alone, strict=True)]
        information = fmean(one["mutual_information"] for one in after)
        expected = [
            f"{fmean(one['accuracy'] for one in after):.3f}",
            f"{fmean(one['nll'] for one in after):.3f}",
            f"{fmean(change):+.3f} ± {spread(change):.3f}".replace("-", "−"),
            f"{fmean(one['ece'] for one in after):.3f}",
            "0" if information < 1e-9 else f"{information:.4f}",
            f"{fmean(one['parameters'] for one in after) / alone[0]['parameters']:.2f}",
        ]
        assert cells == expected, label


@pytest.mark.parametrize(
    ("label", "name"), [("DeepEnsembles of copies", "copies"), ("LoRAEnsembles", "adapters")]
)
def test_rates_for_tuning_are_those_of_the_results(label, name):
    runs = read("trained")
    [cells] = [
        row for row in rows_of("| three seeds", "`finetune` takes") if row[0].startswith(f"{label}, 0")
    ]
    rates = [float(word) for word in cells[0].removeprefix(label).split(",")[1:]]
    shown = {"validation_nll": 3, "nll": 3, "mutual_information": 4}
    for cell, (metric, digits) in zip(cells[1:], shown.items(), strict=True):
        expected = []
        for rate in rates:
            own = [run["tuned"] for run in runs if run["name"] == f"{name} at {rate:g}"]
            assert len(own) == 3
            expected.append(f"{fmean(one[metric] for one in own):.{digits}f}")
        assert cell == ", ".join(expected)


def test_every_row_of_efficientnet_is_that_of_the_results():
    # Later runs are calibrated too, or of other sizes.
    runs = [run for run in read("trained_efficientnet") if run["epochs"] == 2 and "scaled_nll" not in run]
    rows = rows_of("### A network of ImageNet", "LoRA ensembles are as accurate")
    assert len(rows) == 8
    size = next(run["parameters"] for run in runs if run["method"] == "Single")
    for label, *cells in rows:
        own = [run for run in runs if run["method"] == re.split(r"[ ,]", label)[0]]
        assert {run["seed"] for run in own} == {0, 1, 2}, label
        columns = {name: [run[name] for run in own] for name in ("accuracy", "nll", "ece", "auroc")}
        digits = {"auroc": 2}
        shown = [
            f"{fmean(values):.{digits.get(name, 3)}f} ± {spread(values):.{digits.get(name, 3)}f}"
            for name, values in columns.items()
        ]
        assert [cell.replace("**", "") for cell in cells[:4]] == shown, label
        assert cells[5] == f"{own[0]['parameters'] / size:.2f}", label
        assert float(cells[4]) == pytest.approx(fmean(run["mutual_information"] for run in own), abs=6e-5)
        assert float(cells[6]) == pytest.approx(fmean(run["seconds"] for run in own), abs=0.51), label


def test_the_numbers_of_the_molecules_are_those_of_the_results():
    found = json.loads((ROOT / "benchmarks/results/trained_molecules.json").read_text(encoding="utf-8"))
    part = " ".join(PAGE[PAGE.index("### Eight published networks") :].split())

    def listed(values, digits):
        *first, last = (f"{value:.{digits}f}" for value in values)
        return f"{', '.join(first)} and {last}"

    assert f"is {listed(found['disagreement'].values(), 1)} kcal/mol" in part
    assert f"are {listed(found['first'].values(), 2)} kcal/mol" in part
    assert f"last ones {listed(found['last'].values(), 2)}." in part


def test_every_row_of_the_longer_tunings_is_that_of_the_results():
    document = json.loads((ROOT / "benchmarks/results/trained.json").read_text(encoding="utf-8"))
    rows = rows_of("### Five epochs", "- On data that the network already knows")
    names = [
        *("network", "single", "deep_ensembles", "lora_ensembles", "swag", "emp", "laplace"),
        "from scratch",
    ]
    assert len(rows) == len(names)
    for name, (label, *cells) in zip(names, rows, strict=True):
        own = [run for run in document["longer"] if run["name"] == name]
        assert len(own) == 3
        raw, calibrated = [run["raw"] for run in own], [run["calibrated"] for run in own]
        columns = [
            [one["accuracy"] for one in raw],
            [one["nll"] for one in raw],
            [one["scaled_nll"] for one in calibrated],
            [one["ece"] for one in raw],
            [one["scaled_ece"] for one in calibrated],
        ]
        shown = [f"{fmean(values):.3f} ± {spread(values):.3f}" for values in columns]
        assert [cell.replace("**", "") for cell in cells[:5]] == shown, label
        assert float(cells[5]) == pytest.approx(fmean(one["mutual_information"] for one in raw), abs=6e-5)
