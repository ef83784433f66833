"""run.json: names are looked up in registries, code comes from the command line, and both are compared."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import pluribus as pl
from pluribus.cli import main as cli

FILE = "run.json"
OWN = """
import torch
import pluribus as pl
from pluribus.data import Split, Task

FORWARD = torch.relu
COUNT = 90


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.second(FORWARD(self.first(x)))


def build():
    return Net()


def task():
    x = torch.randn(COUNT, 3, generator=torch.Generator().manual_seed(0))
    y = (x.sum(1) > 0).long()
    return Task("mine", *(Split(x[i::3], y[i::3]) for i in range(3)), likelihood=pl.Categorical(), classes=2)
"""
ARGUMENTS = ("--task", "trusted_code:task", "--model", "trusted_code:build")

TRAIN = ("train", "--method", "single", "--epochs", 1, "--accelerator", "cpu")


def invoke(*arguments):
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the user's code, a trained run of it, and inputs."""
    folder = tmp_path_factory.mktemp("run_file")
    (folder / "trusted_code.py").write_text(OWN)
    np.save(folder / "x.npy", np.zeros((2, 3)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        assert invoke(*TRAIN, *ARGUMENTS, "--out", folder / "run").exit_code == 0
        yield folder


def predict(folder, *arguments):
    return invoke("predict", folder / "run", folder / "x.npy", "--out", folder / "p.csv", *arguments)


def test_a_run_folder_executes_no_code(tmp_path):
    command = f"command='touch {tmp_path / 'owned'}'"
    (tmp_path / FILE).write_text(json.dumps({"task": "os:system", "options": [command], "model": "mlp"}))
    for arguments in (["predict", tmp_path, tmp_path / "x.npy"], ["evaluate", tmp_path]):
        with pytest.raises(pl.SettingError, match="code is never taken from a file"):
            invoke(*arguments)
    assert not (tmp_path / "owned").exists()


def test_a_network_that_a_file_names_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "hostile.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    document = {"task": "two_moons", "options": ["train=60"], "model": "hostile:build"}
    (tmp_path / FILE).write_text(json.dumps(document))
    with pytest.raises(pl.SettingError, match="name it again with --model"):
        invoke("evaluate", tmp_path)
    assert not (tmp_path / "owned").exists()


def test_own_code_is_taken_from_the_command_line_again(folder):
    with pytest.raises(pl.SettingError, match="name it again with --model"):
        predict(folder)
    with pytest.raises(pl.SettingError, match="name it again with --task"):
        invoke("evaluate", folder / "run")
    assert predict(folder, *ARGUMENTS).exit_code == 0
    assert predict(folder, *ARGUMENTS[2:]).exit_code == 0  # prediction needs the network, and no task


def test_own_code_of_another_name_is_refused(folder):
    with pytest.raises(
        pl.SettingError, match=r"--model must be what .* made with, 'trusted_code:build', got"
    ):
        predict(folder, *ARGUMENTS[:3], "trusted_code:other")


def test_a_network_with_another_forward_is_refused(folder, monkeypatch):
    monkeypatch.setattr("trusted_code.FORWARD", torch.tanh)
    with pytest.raises(pl.CheckpointError, match="its forward computes something else in eval mode"):
        predict(folder, *ARGUMENTS)


def test_a_task_of_another_size_is_refused(folder, monkeypatch):
    monkeypatch.setattr("trusted_code.COUNT", 60)
    with pytest.raises(pl.InputError, match=r"with sizes '30 train, .*, got '20 train"):
        predict(folder, *ARGUMENTS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"task": "two_m', "run.json is damaged or foreign: expected JSON"),
        ("[1, 2]", "run.json is damaged or foreign: the content must be an object, got a list of 2"),
        ('{"options": [], "model": "mlp"}', "field task is missing"),
        ('{"task": 3, "options": [], "model": "mlp"}', "field task must be a text"),
        ('{"task": "digits", "options": [3], "model": "mlp"}', r"field options\[0\] must be a text"),
        ('{"task": "gone", "options": [], "model": "mlp"}', "field task must be built in, got 'gone'"),
        ('{"task": "a", "task": "b", "options": [], "model": "mlp"}', "got 'task' twice"),
        ("[" * 100_000, "at most 64 nested brackets"),
    ],
)
def test_a_damaged_run_file_is_refused_by_name(text, message, tmp_path):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(pl.CheckpointError, match=message):
        invoke("predict", tmp_path, tmp_path / "x.npy")


def test_training_another_network_into_one_folder_is_refused(folder, tmp_path, monkeypatch):
    line = [*TRAIN, "--out", tmp_path]
    assert invoke(*line, *ARGUMENTS).exit_code == 0
    monkeypatch.setattr("trusted_code.FORWARD", torch.tanh)
    with pytest.raises(pl.CheckpointError, match=r"the network differs: its forward computes something else"):
        invoke(*line, *ARGUMENTS)
