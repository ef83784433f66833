"""The run to predict with: of a comparison, the recommended one, wherever it lies."""

import csv
import json
import shutil

import numpy as np
import pytest

from pluribus.cli.commands import doctor, evaluate, export, predict
from pluribus.comparison import record
from pluribus.comparison.comparison import compare
from pluribus.data import two_moons
from pluribus.errors import CheckpointError, SettingError
from pluribus.methods import DeepEnsembles, Single
from pluribus.report.budget import parse_budget
from pluribus.report.choice_file import FILE
from pluribus.report.groups import group_records
from pluribus.report.page import write_page
from pluribus.runs.chosen_run import chosen_run
from pluribus.runs.named_network import Build
from pluribus.training import Training


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """A comparison of two methods."""
    folder = tmp_path_factory.mktemp("compared")
    task = two_moons()
    options = {"seeds": 1, "training": Training(steps=4), "recipes": False, "shifted": False, "show": False}
    build = Build("mlp", task)
    compare(build, task, [Single(), DeepEnsembles(members=2)], out=folder, network="mlp", **options)
    return folder


def predictions(run, inputs, out):
    given = {"task": None, "model": None, "data_dir": None, "most_bytes": 10**9, "costs": ""}
    machine = {"accelerator": "cpu", "devices": 1, "precision": "32-true"}
    predict(run=run, inputs=inputs, out=out, **given, **machine)
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_comparison_predicts_by_its_recommended_run(comparison, tmp_path, capsys):
    best = min(record.read([comparison]), key=lambda one: one.metrics["nll"])
    run, sentence = chosen_run(comparison)
    assert run.name == f"{best.method['kind']}-0-{best.key}"
    assert "is recommended, by nll" in sentence
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(600, 2)))
    rows = predictions(comparison, tmp_path / "x.npy", tmp_path / "p.csv")
    assert [int(row["id"]) for row in rows] == list(range(600))
    assert {"labels", "confidence", "entropy", "mutual_information"} <= set(rows[0])
    # Moved to another folder, it gives the same numbers.
    moved = tmp_path / "moved"
    shutil.copytree(comparison, moved)
    assert predictions(moved, tmp_path / "x.npy", tmp_path / "q.csv") == rows
    assert predictions(run, tmp_path / "x.npy", tmp_path / "r.csv") == rows


def test_a_comparison_predicts_by_the_run_that_its_page_recommends(comparison, tmp_path):
    """A budget of the comparison, or another metric, counts for predictions too."""
    folder = tmp_path / "compared"
    shutil.copytree(comparison, folder)
    groups = group_records(record.read([folder], outcomes=True))
    write_page(folder, groups, parse_budget("parameters<=1.5x"))
    run, sentence = chosen_run(folder)
    assert run.name.startswith("single-0-")
    assert "is recommended, by nll within parameters ≤ 1.5 ×" in sentence
    write_page(folder, groups, metric="calibrated_nll")
    assert "by calibrated_nll" in chosen_run(folder)[1]
    # Another run, chosen anew, could exceed the budget.
    stored = json.loads((folder / FILE).read_text())
    (folder / FILE).write_text(json.dumps(stored | {"key": "missing"}))
    with pytest.raises(SettingError, match="must hold the run 'missing'"):
        chosen_run(folder)
    # Nothing within the budget: the choice of an earlier page is no longer one.
    write_page(folder, groups, parse_budget("parameters<=0.1x"))
    assert not (folder / FILE).exists()
    (folder / FILE).write_text('{"key": "\\u001b", "judge": "\\u001b[2J", "limits": []}')
    with pytest.raises(CheckpointError, match="damaged or foreign"):
        chosen_run(folder)


def test_a_comparison_exports_its_recommended_run(comparison, tmp_path, capsys):
    given = {"task": None, "model": None, "data_dir": None, "members": False, "level": 0.9}
    machine = {"accelerator": "cpu", "devices": 1, "precision": "32-true"}
    export(run=comparison, format="pt2", out=tmp_path / "best", **given, **machine)
    best = min(record.read([comparison]), key=lambda one: one.metrics["nll"])
    described = json.loads((tmp_path / "best.pt2.json").read_text())
    assert described["method"]["kind"] == best.method["kind"]
    assert "is recommended" in capsys.readouterr().err


def test_a_comparison_is_evaluated_by_its_recommended_run(comparison, tmp_path, capsys):
    given = {"task": None, "model": None, "data_dir": None}
    machine = {"accelerator": "cpu", "devices": 1, "precision": "32-true"}
    evaluate(run=comparison, costs="miss=10,alarm=1,defer=0.5", out=tmp_path, **given, **machine)
    best = min(record.read([comparison]), key=lambda one: one.metrics["nll"])
    (measured,) = record.read([tmp_path])
    assert measured.method == best.method
    assert measured.metrics["nll"] == pytest.approx(best.metrics["nll"])
    doctor(run=comparison, **given, **machine)
    assert capsys.readouterr().err.count("is recommended") == 2


def test_predictions_without_a_threshold_are_told(comparison, tmp_path, capsys):
    """Whoever reads that nothing is flagged must know that nothing could be."""
    run, _ = chosen_run(comparison)
    copied = tmp_path / "run"
    shutil.copytree(run, copied)
    document = copied / "ensemble" / "ensemble.json"
    settings = json.loads(document.read_text())
    np.save(tmp_path / "x.npy", np.full((3, 2), 1e6))
    told = "flagged is False everywhere"
    predictions(copied, tmp_path / "x.npy", tmp_path / "p.csv")
    assert (told in capsys.readouterr().err) == (settings["calibration"]["threshold"] == "inf")
    settings["calibration"]["threshold"] = "inf" if settings["calibration"]["threshold"] != "inf" else 1.0
    document.write_text(json.dumps(settings))
    predictions(copied, tmp_path / "x.npy", tmp_path / "p.csv")
    assert (told in capsys.readouterr().err) == (settings["calibration"]["threshold"] == "inf")


def test_a_folder_without_a_choice_is_refused(comparison, tmp_path):
    assert chosen_run(tmp_path) == (tmp_path, "")
    run, _ = chosen_run(comparison)
    assert chosen_run(run) == (run, "")
    shutil.copy(comparison / record.FILE, tmp_path)
    with pytest.raises(SettingError, match="of the recommended run, got none"):
        chosen_run(tmp_path)


def test_a_search_predicts_by_the_run_that_it_took(tmp_path):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "run.json").write_text("{}")
    choice = {"trial": 3, "label": "sae(inputs=2)", "key": "k", "values": {"nll": 0.5}, "cost": {}}
    (taken / "choice.json").write_text(json.dumps(choice))
    run, sentence = chosen_run(tmp_path)
    assert run == taken
    assert "sae(inputs=2)" in sentence
