"""Exporting: a verified file with its description, or nothing at all."""

import hashlib
import json

import pytest

import pluribus as pl
from pluribus.export import exporting
from pluribus.export.exporting import description_path, export_file, find_format
from pluribus.export.pt2 import PT2
from tests.export.sources import linear_source


class Wrong(PT2):
    """A format whose files forget the labels."""

    def open(self, path):
        run = super().open(path)
        return lambda tensors: {**run(tensors), "labels": tensors["image"][:, 0].long() - 9}


def test_a_file_is_put_in_place_with_its_description(tmp_path):
    path = export_file(tmp_path / "new" / "model", linear_source(), format="pt2", members=True)
    assert path == tmp_path / "new" / "model.pt2"
    assert sorted(file.name for file in path.parent.iterdir()) == ["model.pt2", "model.pt2.json"]
    found = json.loads(description_path(path).read_text())
    assert found["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert [one["name"] for one in found["outputs"]][-1] == "members"
    assert len(found["verified"]["calls"]) == 3


def test_a_file_that_differs_is_deleted_and_the_earlier_one_stays(tmp_path, monkeypatch):
    monkeypatch.setitem(exporting.FORMATS, "pt2", Wrong())
    (tmp_path / "model.pt2").write_text("before")
    with pytest.raises(pl.ExportError, match="got labels that differs by inf"):
        export_file(tmp_path / "model.pt2", linear_source(), format="pt2")
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt2"]
    assert (tmp_path / "model.pt2").read_text() == "before"


def test_wrong_arguments_are_refused_before_anything_is_traced(tmp_path):
    source = linear_source()
    with pytest.raises(pl.SettingError, match="format must be one of onnx, pt2, openvino, got 'onx'"):
        export_file(tmp_path / "model", source, format="onx")
    with pytest.raises(pl.SettingError, match=r"must end with \.pt2 .* got model\.onnx\. Pass format='onnx'"):
        export_file(tmp_path / "model.onnx", source, format="pt2")
    with pytest.raises(pl.SettingError, match="level must be above 0 and below 1"):
        export_file(tmp_path / "model", source, format="pt2", level=90)
    assert list(tmp_path.iterdir()) == []


def test_a_file_name_may_have_other_dots(tmp_path):
    assert exporting._with_suffix(tmp_path / "net.v2", find_format("onnx")).name == "net.v2.onnx"
