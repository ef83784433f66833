"""Checkpoints: what was written is read again, whole or not at all, and only for the same settings."""

import pytest
import torch
from torch.testing import assert_close

import pluribus as pl
from pluribus.training import checkpoint
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
