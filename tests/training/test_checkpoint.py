"""Checkpoints: what was written is read again, whole or not at all, and only for the same settings."""

import errno
import os
import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

import pluribus as pl
from pluribus.data import two_moons
from pluribus.errors import WriteError
from pluribus.methods import DeepEnsembles
from pluribus.training import Training, checkpoint, train
from pluribus.training.checkpoint import Progress

SETTINGS = {"method": {"kind": "single"}, "training": {"lr": 0.1}}


def write(folder, weight=1.0):
    progress = Progress(SETTINGS, epoch=2, history=[{"loss": 0.5}], best_weights={"w": torch.tensor([7.0])})
    optimizer = {
        "state": {0: {"momentum_buffer": torch.ones(2)}},
        "param_groups": [{"lr": 0.1, "params": [0]}],
    }
    checkpoint.write(folder, progress, {"w": torch.tensor([weight])}, optimizer)


def test_what_was_written_is_read_again(tmp_path):
    write(tmp_path)
    found = checkpoint.read(tmp_path, SETTINGS)
    progress = Progress(**found["progress"])
    assert (progress.epoch, progress.history, progress.best) == (2, [{"loss": 0.5}], float("inf"))
    assert_close(
        (found["weights"]["w"], progress.best_weights["w"]), (torch.tensor([1.0]), torch.tensor([7.0]))
    )
    assert_close(found["optimizer"]["state"][0]["momentum_buffer"], torch.ones(2))


def test_random_numbers_go_on_where_they_were(tmp_path):
    write(tmp_path)
    expected = torch.rand(3)
    torch.rand(5)
    checkpoint.restore_random(checkpoint.read(tmp_path, SETTINGS))
    assert_close(torch.rand(3), expected, rtol=0, atol=0)


def test_there_may_be_nothing_to_read(tmp_path):
    assert checkpoint.read(tmp_path, SETTINGS) is None


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    write(tmp_path)
    with pytest.raises(pl.CheckpointError, match=r"training differs \(lr 0.1, now 0.2\)\. "):
        checkpoint.read(tmp_path, SETTINGS | {"training": {"lr": 0.2}})


def test_a_damaged_checkpoint_is_refused(tmp_path):
    write(tmp_path)
    path = tmp_path / checkpoint.FILE
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(pl.CheckpointError, match="Delete it to start anew"):
        checkpoint.read(tmp_path, SETTINGS)


def test_a_write_that_is_killed_leaves_the_one_before(tmp_path, monkeypatch):
    write(tmp_path)

    def killed(state, path):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, weight=2.0)
    assert_close(checkpoint.read(tmp_path, SETTINGS)["weights"]["w"], torch.tensor([1.0]))


def full_disk(state, path):
    path.write_bytes(b"half")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def torchs_full_disk(state, path):
    path.write_bytes(b"half")
    raise RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0")


@pytest.mark.parametrize("writer", [full_disk, torchs_full_disk])
def test_a_full_disk_is_one_line_and_leaves_the_checkpoint_before(writer, tmp_path, monkeypatch):
    write(tmp_path)
    monkeypatch.setattr(torch, "save", writer)
    with pytest.raises(WriteError, match=r"training.pt must be writable, got: No space left on device"):
        write(tmp_path, weight=2.0)
    assert os.listdir(tmp_path) == [checkpoint.FILE]
    assert_close(checkpoint.read(tmp_path, SETTINGS)["weights"]["w"], torch.tensor([1.0]))


def test_what_killed_trainings_left_is_removed(tmp_path):
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    (tmp_path / f".{checkpoint.FILE}.{done.pid}").write_bytes(b"half")
    assert checkpoint.read(tmp_path, SETTINGS) is None
    assert os.listdir(tmp_path) == []


def changed(**changes):
    def change(state):
        state.update(changes)
        return state

    return change


def without(*names):
    return lambda state: {name: value for name, value in state.items() if name not in names}


def with_progress(**changes):
    return lambda state: state | {"progress": state["progress"] | changes}


DAMAGE = {
    "a list": (lambda state: [state], "must be an object, got a list of 1"),
    "no optimizer": (without("optimizer"), "field optimizer is missing"),
    "no progress": (without("progress"), "field progress is missing"),
    "weights that are numbers": (changed(weights={"w": 3}), "field weights.w must be a tensor"),
    "an optimizer that is a list": (changed(optimizer=[]), "field optimizer must be an object"),
    "an optimizer of lists": (
        changed(optimizer={"state": [], "param_groups": []}),
        "optimizer.state must be",
    ),
    "garbage as history": (with_progress(history="abc"), "field progress.history must be a list"),
    "garbage in the history": (
        with_progress(history=[{"loss": "a"}]),
        r"progress.history\[0\].loss must be a number",
    ),
    "an epoch below zero": (with_progress(epoch=-1), "field progress.epoch must be a whole number"),
    "settings that are none": (with_progress(settings=3), "field progress.settings must be an object"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_foreign_checkpoint_is_refused_with_its_field(name, tmp_path):
    change, says = DAMAGE[name]
    write(tmp_path)
    torch.save(change(torch.load(tmp_path / checkpoint.FILE, weights_only=True)), tmp_path / checkpoint.FILE)
    with pytest.raises(pl.CheckpointError, match=f"training.pt is damaged or foreign: .*{says}"):
        checkpoint.read(tmp_path, SETTINGS)


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("owned",)


def test_a_checkpoint_runs_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"progress": Hostile()}, tmp_path / checkpoint.FILE)
    with pytest.raises(pl.CheckpointError, match="must be a checkpoint"):
        checkpoint.read(tmp_path, SETTINGS)
    assert not (tmp_path / "owned").exists()


def trained(folder, network=None):
    ensemble = pl.convert(network or torch.nn.Linear(2, 2), DeepEnsembles(members=2))
    train(ensemble, two_moons(train=40), Training(epochs=1), out=folder, show=False)
    return ensemble


class Swapped(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x.flip(1))


def test_another_network_is_no_resumption(tmp_path):
    trained(tmp_path)
    swapped = Swapped(2, 2)
    Swapped.__name__ = "Linear"
    with pytest.raises(pl.CheckpointError, match="the network differs: its forward computes something else"):
        trained(tmp_path, swapped)
    with pytest.raises(pl.CheckpointError, match="the network differs: "):
        trained(tmp_path, torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2)))
