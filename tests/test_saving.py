"""The folder of a saved ensemble is whole or not there, and a failure leaves what was there before."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn
from torch.testing import assert_close

from pluribus import CheckpointError, saving
from pluribus.errors import PluribusError, WriteError
from pluribus.saving import FORMAT, SETTINGS, VERSION, WEIGHTS, read_folder, read_tensors, write_folder

OLD = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor([True, False]), "c": torch.tensor(7)}
NEW = {"a": torch.ones(2, 3)}


def listing(folder) -> list[str]:
    return sorted(os.listdir(folder))


def test_what_is_written_is_read(tmp_path):
    write_folder(tmp_path / "deep" / "run", {"seed": 3}, OLD)
    settings, tensors = read_folder(str(tmp_path / "deep" / "run"))
    assert settings == {"format": FORMAT, "version": VERSION, "seed": 3}
    assert_close(tensors, OLD, rtol=0, atol=0)
    assert listing(tmp_path / "deep") == ["run"]
    assert listing(tmp_path / "deep" / "run") == [SETTINGS, WEIGHTS]


def test_tensors_of_every_layout_and_dtype_are_written_as_they_look(tmp_path):
    matrix = torch.arange(12.0).view(3, 4)
    tensors = {"transposed": matrix.T, "expanded": torch.ones(1, 4).expand(5, 4), "empty": torch.empty(0, 3)}
    tensors |= {"parameter": nn.Parameter(matrix + 1), "half": matrix.half(), "brain": matrix.bfloat16()}
    tensors |= {"channels": torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)}
    write_folder(tmp_path / "run", {}, tensors)
    assert_close(
        read_folder(tmp_path / "run")[1], {name: tensor.detach() for name, tensor in tensors.items()}
    )


def test_others_may_read_the_folder(tmp_path):
    write_folder(tmp_path / "run", {}, OLD)
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755


def test_a_later_save_takes_the_place_of_an_earlier_one(tmp_path):
    write_folder(tmp_path / "run", {"seed": 1}, OLD)
    write_folder(tmp_path / "run", {"seed": 2}, NEW)
    settings, tensors = read_folder(tmp_path / "run")
    assert settings["seed"] == 2
    assert_close(tensors, NEW)
    assert listing(tmp_path) == ["run"]


def test_an_empty_folder_is_filled(tmp_path):
    write_folder(tmp_path, {}, OLD)
    assert_close(read_folder(tmp_path)[1], OLD)


FAILURES = {
    "of the weights": (saving, "save_file", OSError, 0),
    "of the settings": (json, "dumps", TypeError, 0),
    "by an interrupt": (json, "dumps", KeyboardInterrupt, 0),
    "of the first move": (os, "replace", OSError, 0),
    "of the second move": (os, "replace", OSError, 1),
}


@pytest.fixture
def failing(monkeypatch):
    """Lets one call of a function fail, the first or the second."""

    def patch(module, name: str, error: type[BaseException], after: int) -> type[BaseException]:
        real, calls = getattr(module, name), itertools.count()

        def function(*args, **kwargs):
            if next(calls) == after:
                raise error("injected")
            return real(*args, **kwargs)

        monkeypatch.setattr(module, name, function)
        return error

    return patch


@pytest.mark.parametrize("failure", FAILURES)
def test_a_save_that_fails_leaves_the_earlier_one(failure, tmp_path, failing):
    write_folder(tmp_path / "run", {"seed": 1}, OLD)
    with pytest.raises(failing(*FAILURES[failure])):
        write_folder(tmp_path / "run", {"seed": 2}, NEW)
    assert listing(tmp_path) == ["run"]
    settings, tensors = read_folder(tmp_path / "run")
    assert settings["seed"] == 1
    assert_close(tensors, OLD, rtol=0, atol=0)


@pytest.mark.parametrize("failure", list(FAILURES)[:4])
def test_a_first_save_that_fails_leaves_nothing(failure, tmp_path, failing):
    with pytest.raises(failing(*FAILURES[failure])):
        write_folder(tmp_path / "run", {}, OLD)
    assert listing(tmp_path) == []


def test_what_is_not_ours_is_never_overwritten(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_text("meow")
    (tmp_path / "file").write_text("mine")
    for name in ("photos", "file"):
        with pytest.raises(CheckpointError, match=r"must be new, empty or a saved ensemble, got .* Choose"):
            write_folder(tmp_path / name, {}, OLD)
    assert listing(tmp_path) == ["file", "photos"]
    assert listing(tmp_path / "photos") == ["cat.png"]


@pytest.mark.parametrize("saved", [True, False], ids=["of ours", "of another program"])
def test_files_of_the_user_in_the_folder_survive_a_save(saved, tmp_path):
    run = tmp_path / "run"
    if saved:
        write_folder(run, {}, OLD)
    else:
        run.mkdir()
        (run / SETTINGS).write_text('{"format": "orchestra"}')
    (run / "notes.txt").write_text("three weeks of work")
    try:
        write_folder(run, {}, NEW)
    except CheckpointError:
        assert not saved or listing(run) == [SETTINGS, "notes.txt", WEIGHTS]
    assert (run / "notes.txt").read_text() == "three weeks of work"
    assert saved or json.loads((run / SETTINGS).read_text()) == {"format": "orchestra"}


def test_a_save_through_a_link_leaves_no_rest(tmp_path):
    write_folder(tmp_path / "run", {"seed": 1}, OLD)
    (tmp_path / "best").symlink_to(tmp_path / "run", target_is_directory=True)
    write_folder(tmp_path / "best", {"seed": 2}, NEW)
    assert read_folder(tmp_path / "best")[0]["seed"] == 2
    assert listing(tmp_path) == ["best", "run"]


def test_a_link_to_itself_is_an_error_of_ours(tmp_path):
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(PluribusError, match="round"):
        write_folder(tmp_path / "round", {}, NEW)
    with pytest.raises(CheckpointError, match=f"round must hold {SETTINGS}"):
        read_folder(tmp_path / "round")
    assert listing(tmp_path) == ["round"]


def test_a_parent_that_is_a_file_is_refused_by_name(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match="file"):
        write_folder(tmp_path / "file" / "run", {}, OLD)


def test_a_folder_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(
        CheckpointError,
        match=f"none must hold {SETTINGS} and {WEIGHTS}, got no {SETTINGS} and no {WEIGHTS}. Give",
    ):
        read_folder(tmp_path / "none")


@pytest.mark.parametrize("key", [None, "state_dict", "model_state_dict", "model"])
def test_weights_are_read_from_files_of_torch(key, tmp_path):
    torch.save(OLD if key is None else {key: OLD, "epoch": 3}, tmp_path / "weights.pt")
    assert_close(read_tensors(tmp_path / "weights.pt"), OLD)


def test_weights_are_read_from_safetensors(tmp_path):
    save_file(OLD, tmp_path / "weights.safetensors")
    assert_close(read_tensors(str(tmp_path / "weights.safetensors")), OLD)


def cut(path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


DAMAGE = {
    "missing.pt": (lambda path: None, "got no such file"),
    "cut.safetensors": (lambda path: (save_file(OLD, path), cut(path)), "truncated or foreign"),
    "empty.safetensors": (lambda path: path.write_bytes(b""), "truncated or foreign"),
    "cut.pt": (lambda path: (torch.save(OLD, path), cut(path)), "cannot be read"),
    "empty.pt": (lambda path: path.write_bytes(b""), "truncated or foreign"),
    "text.pt": (lambda path: path.write_text("weights"), "cannot be read"),
    "list.pt": (lambda path: torch.save([1, 2], path), "must hold a state_dict, got list"),
    "numbers.pt": (lambda path: torch.save({"a": 1}, path), "must hold a state_dict"),
    "module.pt": (
        lambda path: torch.save(nn.Linear(2, 2), path),
        r"cannot be read.*Save model\.state_dict\(\)",
    ),
    "folder.pt": (lambda path: path.mkdir(), "got no such file"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files_are_refused_by_name(name, tmp_path):
    damage, says = DAMAGE[name]
    damage(tmp_path / name)
    with pytest.raises(CheckpointError, match=f"{name} .*{says}"):
        read_tensors(tmp_path / name)


def test_the_reason_of_a_damaged_file_is_told_in_plain_words(tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    with pytest.raises(CheckpointError) as caught:
        read_tensors(tmp_path / "module.pt")
    assert "\\x1b" not in str(caught.value)
    assert "): '" not in str(caught.value)


def test_a_folder_can_be_moved(tmp_path):
    write_folder(tmp_path / "run", {}, OLD)
    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    assert_close(read_folder(tmp_path / "elsewhere")[1], OLD)


KILLED = """
import os, signal, sys, torch
from pluribus import saving

real, calls = os.replace, []
def replace(*args):
    calls.append(args)
    if len(calls) == {after}:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args)

os.replace = replace
saving.write_folder(sys.argv[1], {{"seed": 2}}, {{"a": torch.ones(2, 3)}})
"""


@pytest.mark.parametrize("after", [1, 2])
def test_a_save_killed_between_its_moves_leaves_the_earlier_one_readable(after, tmp_path):
    write_folder(tmp_path / "run", {"seed": 1}, OLD)
    done = subprocess.run(
        [sys.executable, "-c", KILLED.format(after=after), str(tmp_path / "run")], check=False
    )
    assert done.returncode == -signal.SIGKILL
    settings, tensors = read_folder(tmp_path / "run")
    assert settings["seed"] == 1
    assert_close(tensors, OLD, rtol=0, atol=0)
    write_folder(tmp_path / "run", {"seed": 3}, NEW)
    assert listing(tmp_path) == ["run"]


def test_a_backup_of_earlier_versions_is_restored(tmp_path):
    write_folder(tmp_path / "run", {"seed": 1}, OLD)
    (tmp_path / "run").rename(tmp_path / ".run-ab12-old")
    assert read_folder(tmp_path / "run")[0]["seed"] == 1
    assert listing(tmp_path) == ["run"]


def test_a_full_disk_leaves_the_earlier_save(tmp_path, monkeypatch):
    def full(tensors, path):
        path.write_bytes(b"half")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    write_folder(tmp_path / "run", {"seed": 1}, OLD)
    monkeypatch.setattr(saving, "save_file", full)
    with pytest.raises(WriteError, match="run must be writable, got: No space left on device"):
        write_folder(tmp_path / "run", {"seed": 2}, NEW)
    assert listing(tmp_path) == ["run"]
    assert read_folder(tmp_path / "run")[0]["seed"] == 1
