"""Files of torch: what they hold is read, and nothing takes more memory than its file allows."""

import zipfile

import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus.cli.verification import verify
from pluribus.saving import read_tensors
from pluribus.torch_files import load_torch
from pluribus.training import checkpoint


def compressed(path):
    """Replace a file of torch by one that is compressed."""
    with zipfile.ZipFile(path) as archive:
        parts = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def test_content_comes_back_in_both_formats(tmp_path):
    tied = torch.randn(3)
    content = {"a": tied, "b": [tied, {"c": 1.5}], "position": torch.arange(4).expand(1, -1)}
    for name, new in (("new.pt", True), ("old.pt", False)):
        torch.save(content, tmp_path / name, _use_new_zipfile_serialization=new)
        again = load_torch(tmp_path / name)
        assert again["a"].equal(tied)
        assert again["b"][1] == {"c": 1.5}


def test_compressed_files_are_refused_before_they_are_unpacked(tmp_path):
    file = tmp_path / "bomb.pt"
    torch.save({"x": torch.zeros(10_000_000)}, file)
    compressed(file)
    assert file.stat().st_size < 100_000
    with pytest.raises(pl.CheckpointError, match="must not be compressed"):
        read_tensors(file)
    with pytest.raises(pl.CheckpointError, match="must not be compressed"):
        checkpoint.read_state(file)


def test_one_number_that_stands_for_many_is_refused(tmp_path):
    file = tmp_path / "repeated.pt"
    state = {name: torch.zeros(1).expand(10**11) for name in nn.Linear(2, 2).state_dict()}
    torch.save(state, file)
    with pytest.raises(pl.CheckpointError, match="must take at most"):
        read_tensors(file)
    torch.save({"weights": state}, tmp_path / checkpoint.FILE)
    (found,) = verify(tmp_path)
    assert "must take at most" in found.problem


def test_lists_that_hold_one_another_end(tmp_path):
    shared = [torch.zeros(1)]
    for _ in range(100):
        shared = [shared, shared]
    torch.save(shared, tmp_path / "shared.pt")
    assert len(load_torch(tmp_path / "shared.pt")) == 2
