"""Deliveries: files of a run travel as bytes, and stay below its folder."""

import pytest

import pluribus as pl
from pluribus.comparison.delivery import read_files, write_files


def test_files_come_back_without_checkpoint_and_lock(tmp_path):
    (tmp_path / "a" / "ensemble").mkdir(parents=True)
    for name in ("run.json", "ensemble/weights", "training.pt", "lock"):
        (tmp_path / "a" / name).write_bytes(name.encode())
    found = read_files(tmp_path / "a")
    assert found == {"run.json": b"run.json", "ensemble/weights": b"ensemble/weights"}
    write_files(tmp_path / "b", found)
    assert read_files(tmp_path / "b") == found


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside", ""])
def test_paths_out_of_the_folder_are_refused_before_anything_is_written(name, tmp_path):
    with pytest.raises(pl.PluribusError, match="must lie below its folder"):
        write_files(tmp_path / "run", {"run.json": b"", name: b""})
    assert list(tmp_path.iterdir()) == []
