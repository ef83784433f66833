"""Files are written whole or not at all, and nothing is left behind."""

import errno
import os
import socket
import stat
import subprocess
import sys

import pytest
import torch

import pluribus as pl
from pluribus.errors import WriteError
from pluribus.writing import explaining, remove_stale, replacing, unfinished_name


def test_a_file_takes_its_place_when_it_is_whole(tmp_path):
    with replacing(tmp_path / "deep" / "a.txt") as unfinished:
        unfinished.write_text("new")
        assert not (tmp_path / "deep" / "a.txt").exists()
    assert (tmp_path / "deep" / "a.txt").read_text() == "new"
    assert os.listdir(tmp_path / "deep") == ["a.txt"]


def write_half(path, error):
    with replacing(path) as unfinished:
        unfinished.write_text("half")
        raise error


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, ValueError, OSError(errno.ENOSPC, "No space left on device")]
)
def test_a_failure_leaves_the_file_before_and_no_litter(error, tmp_path):
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(WriteError if isinstance(error, OSError) else error):
        write_half(tmp_path / "a.txt", error)
    assert (tmp_path / "a.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0"),
        RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"),
        Exception("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_one_line_of_ours(error, tmp_path):
    says = r"a.txt must be writable, got: No space left on device. Free some space and run it again"
    with pytest.raises(WriteError, match=says) as caught, explaining(tmp_path / "a.txt"):
        raise error
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, pl.PluribusError)


def dead_process() -> int:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_what_killed_processes_left_is_removed_and_the_living_are_spared(tmp_path):
    dead, host = dead_process(), unfinished_name("").split(".")[2].rpartition("-")[0]
    gone = [f".a.txt.{dead}", f".a.txt.{host}-{dead}"]
    kept = [
        f".a.txt.{os.getppid()}",
        f".a.txt.{host}-{os.getppid()}",
        f".a.txt.elsewhere-{dead}",
        f".b.txt.{dead}",
    ]
    kept += [".a.txt.swp", "a.txt"]
    for name in gone + kept:
        (tmp_path / name).write_text("half")
    remove_stale(tmp_path / "a.txt")
    assert sorted(os.listdir(tmp_path)) == sorted(kept)
    assert socket.gethostname()


@pytest.mark.parametrize(
    ("umask", "file", "folder"), [(0o022, 0o644, 0o755), (0o077, 0o600, 0o700), (0o002, 0o664, 0o775)]
)
def test_modes_follow_the_umask(umask, file, folder, tmp_path):
    before = os.umask(umask)
    try:
        pl.convert(torch.nn.Linear(3, 2), pl.Method.known()["single"]()).save(tmp_path / "run")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == folder
    for name in ("weights.safetensors", "ensemble.json"):
        assert stat.S_IMODE((tmp_path / "run" / name).stat().st_mode) == file
