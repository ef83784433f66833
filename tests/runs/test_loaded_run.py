"""Predictions with a folder in Python: those of the command line, and errors that name a remedy."""

import csv
import json
import shutil

import numpy as np
import pandas
import pytest
import torch
from torch.testing import assert_close
from typer.testing import CliRunner

import pluribus as pl
from pluribus.cli import main as cli
from pluribus.data import Split, Task
from pluribus.methods import Single

QUICK = {"seeds": 1, "training": pl.Training(steps=4), "recipes": False, "shifted": False, "show": False}


class Net(torch.nn.Module):
    def __init__(self, activation=torch.relu):
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
        self.activation = activation

    def forward(self, x):
        return self.second(self.activation(self.first(x)))


def invoke(*arguments):
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0


def write_table(path, target):
    draws = np.random.default_rng(0).normal(size=(120, 2))
    lines = [
        f"{a:.4f},{'red' if b > 0 else 'blue'},{target(a)}"
        for a, b in draws  # the colour tells nothing
    ]
    path.write_text("\n".join(["size,colour,target", *lines]) + "\n")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A folder with a table of named classes and its comparison, on the command line."""
    folder = tmp_path_factory.mktemp("compared")
    write_table(folder / "t.csv", lambda a: "well" if a < 0 else "ill")
    options = ["--option", f"path={folder / 't.csv'}", "--option", "target=target", "--accelerator", "cpu"]
    sizes = ["--methods", "single,deep_ensembles(members=2)", "--seeds", 1, "--workers", 1, "--steps", 8]
    invoke("compare", "--task", "csv", *options, *sizes, "--out", folder / "run")
    return folder


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The folder of a comparison of a user's own network, in Python."""
    folder = tmp_path_factory.mktemp("own")
    x = torch.randn(90, 3, generator=torch.Generator().manual_seed(0))
    parts = [Split(x[i::3], (x[i::3].sum(1) > 0).long()) for i in range(3)]
    task = Task("mine", *parts, likelihood=pl.Categorical(), classes=2)
    pl.compare(Net, task, [Single()], out=folder, workers=1, **QUICK)
    return folder


def test_predictions_are_those_of_the_command_line(compared):
    invoke("predict", compared / "run", compared / "t.csv", "--out", compared / "p.csv")
    with (compared / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    run = pl.load_run(compared / "run")
    assert run.ensemble.calibration is not None
    prediction = run.predict(compared / "t.csv")
    found = run.table(prediction)
    assert found["labels"] == [row["labels"] for row in rows]
    assert set(found["labels"]) <= {"ill", "well"}
    assert_close(torch.tensor(found["p_ill"]), torch.tensor([float(row["p_ill"]) for row in rows]))
    frame = pandas.read_csv(compared / "t.csv")
    assert torch.equal(run.predict(frame).probabilities, prediction.probabilities)
    values = run.read(frame).values
    assert torch.equal(run.predict(values.numpy()).probabilities, prediction.probabilities)
    assert str(run.folder) in repr(run)


def test_rows_unlike_training_are_warned_of(compared):
    run = pl.load_run(str(compared / "run"))
    with pytest.warns(UserWarning, match="1 of 2 rows are unlike training"):
        assert len(run.predict({"size": [0.1, 0.2], "colour": ["red", "green"]})) == 2
    with pytest.warns(UserWarning, match="inputs must be raw"):
        run.predict({"size": [1e6], "colour": ["red"]})


def test_numbers_are_in_the_units_of_the_data(tmp_path):
    write_table(tmp_path / "t.csv", lambda a: f"{1000 + 10 * a:.4f}")
    options = ["--option", f"path={tmp_path / 't.csv'}", "--option", "target=target", "--accelerator", "cpu"]
    invoke("train", "--method", "single", "--task", "csv", *options, "--steps", 20, "--out", tmp_path / "run")
    run = pl.load_run(tmp_path / "run")
    prediction = run.predict(tmp_path / "t.csv")
    assert ((prediction.mean > 900) & (prediction.mean < 1100)).all()
    invoke("predict", tmp_path / "run", tmp_path / "t.csv", "--out", tmp_path / "p.csv")
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = torch.tensor(run.table(prediction)["mean"])
    assert_close(found, torch.tensor([float(row["mean"]) for row in rows]))


def test_a_users_network_is_passed_again(own):
    with pytest.raises(pl.SettingError, match=r"a network of your own, 'Net', .* network=build\(\)"):
        pl.load_run(own)
    x = torch.randn(5, 3)
    from_factory, from_module = pl.load_run(own, network=Net), pl.load_run(own, network=Net())
    assert torch.equal(from_factory.predict(x).probabilities, from_module.predict(x).probabilities)
    with pytest.raises(pl.CheckpointError, match="its forward computes something else"):
        pl.load_run(own, network=Net(torch.tanh))
    with pytest.raises(pl.CheckpointError, match="must be loaded with the network it was made from"):
        pl.load_run(own, network=torch.nn.Linear(3, 2))
    with pytest.raises(pl.InputError, match=r"must have the shape \[3\]"):
        from_factory.predict(torch.zeros(2, 4))


def test_no_code_is_imported_because_a_file_names_it(compared, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(pl.load_run(compared / "run").folder, folder)
    (tmp_path / "hostile.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    document = json.loads((folder / "run.json").read_text()) | {"model": "hostile:build"}
    (folder / "run.json").write_text(json.dumps(document))
    with pytest.raises(pl.SettingError, match="code is never taken from a file"):
        pl.load_run(folder)
    assert not (tmp_path / "owned").exists()


def test_a_folder_of_no_run_is_refused(compared, tmp_path):
    with pytest.raises(pl.SettingError, match=r"got no folder. Check the path"):
        pl.load_run(tmp_path / "nowhere")
    with pytest.raises(pl.SettingError, match=r"got one without run.json. Name the folder that"):
        pl.load_run(tmp_path)
    early = tmp_path / "early"
    shutil.copytree(pl.load_run(compared / "run").folder, early)
    (early / "signature.json").unlink()
    with pytest.raises(pl.SettingError, match=r"must hold signature.json, got none.*pluribus predict"):
        pl.load_run(early)
