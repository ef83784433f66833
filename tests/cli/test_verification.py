"""pluribus verify names every damaged file of a folder, and runs no code."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from typer.testing import CliRunner

import pluribus as pl
from pluribus.cli import main as cli
from pluribus.cli.verification import verify
from pluribus.comparison import record
from pluribus.comparison.outcomes import Outcomes
from pluribus.data import Signature, two_moons
from pluribus.methods import DeepEnsembles
from pluribus.training import Training, train
from tests.report.records import classes


@pytest.fixture
def run(tmp_path):
    """A folder with everything that commands write."""
    ensemble = pl.convert(nn.Linear(2, 2), DeepEnsembles(members=2))
    train(ensemble, two_moons(train=60), Training(epochs=1), out=tmp_path, show=False)
    ensemble.save(tmp_path / "ensemble")
    (tmp_path / "run.json").write_text(json.dumps({"task": "two_moons", "options": [], "model": "mlp"}))
    Signature.of(two_moons(train=60)).save(tmp_path)
    record.append(tmp_path, replace(classes(), outcomes=Outcomes({"nll": np.zeros(3)}, {})))
    return tmp_path


def problems(folder):
    return {str(one.path.relative_to(folder)): one.problem for one in verify(folder) if one.problem}


def test_a_sound_folder_has_no_problems(run):
    assert problems(run) == {}
    assert len(verify(run)) == 7
    result = CliRunner().invoke(cli.app, ["verify", str(run)])
    assert result.exit_code == 0
    assert result.output.count("ok ") == 7


def weights(run):
    tensors = load_file(run / "ensemble" / "weights.safetensors")
    save_file(
        {name: tensor + 1 for name, tensor in tensors.items()}, run / "ensemble" / "weights.safetensors"
    )


def settings(run):
    file = run / "ensemble" / "ensemble.json"
    file.write_text(file.read_text().replace('"seed": 0', '"seed": 1'))


def training(run):
    torch.save([1, 2], run / "training.pt")


def outcomes(run):
    (file,) = (run / "outcomes").glob("*.npz")
    np.savez(file, **{"columns/nll": np.zeros((2, 2))})


def records(run):
    with (run / "records.jsonl").open("ab") as file:
        file.write(b"\xff\n")


DAMAGE = {
    "ensemble/weights.safetensors": (weights, "another hash"),
    "ensemble/ensemble.json": (settings, "must be as it was saved, got another hash"),
    "training.pt": (training, "must be an object, got a list of 2"),
    "run.json": (lambda run: (run / "run.json").write_text("{"), "expected JSON"),
    "signature.json": (lambda run: (run / "signature.json").write_text("{}"), "field version is missing"),
    "records.jsonl": (records, "line 2 is damaged"),
    "outcomes": (outcomes, "must be a column of float"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_named(name, run):
    damage, says = DAMAGE[name]
    damage(run)
    ((path, problem),) = problems(run).items()
    assert path.startswith(name)
    assert says in problem
    result = CliRunner().invoke(cli.app, ["verify", str(run)])
    assert result.exit_code == 1
    assert "1 of 7 files damaged" in result.output


def test_weights_that_are_nan_are_named(tmp_path):
    ensemble = pl.convert(nn.Linear(2, 2), DeepEnsembles(members=2))
    with torch.no_grad():
        next(ensemble.parameters()).fill_(torch.nan)
    ensemble.save(tmp_path / "one")
    assert "NaN" in problems(tmp_path / "one")["weights.safetensors"]


def test_nothing_that_a_folder_names_is_imported(run, monkeypatch):
    (run / "hostile.py").write_text("raise SystemExit('owned')")
    monkeypatch.chdir(run)
    (run / "run.json").write_text(json.dumps({"task": "hostile:a", "options": [], "model": "hostile:b"}))
    assert problems(run) == {}


def test_a_folder_of_somebody_else_is_refused(tmp_path):
    with pytest.raises(pl.CheckpointError, match="must be a folder that Pluribus wrote"):
        verify(tmp_path)


def test_a_frozen_ensemble_is_checked(tmp_path):
    pl.convert(nn.Linear(2, 2), DeepEnsembles(members=2)).freeze().save(tmp_path / "one")
    assert problems(tmp_path / "one") == {}
    file = tmp_path / "one" / "frozen.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"notes": ["another"]}))
    assert "frozen.json must be as it was saved" in problems(tmp_path / "one")["frozen.json"]
    file.write_text(json.dumps(document | {"weights": [1.0, 1.0]}))
    assert "sum to one" in problems(tmp_path / "one")["frozen.json"]


@pytest.mark.parametrize(
    "name", ["recommended.json", "space.json", "values.json", "choice.json", "study.db", "testbed.jsonl"]
)
def test_files_of_comparisons_searches_and_testbeds_are_checked(run, name):
    (run / name).write_text("{" * 600)
    assert list(problems(run)) == [name]
