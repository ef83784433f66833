"""OpenVINO files agree with predict, also where two outputs are one tensor."""

import pytest

import pluribus as pl
from pluribus.export.exporting import export_file
from pluribus.likelihood import Point
from tests.export.sources import linear_source


@pytest.mark.slow
def test_a_file_is_two_files_and_a_description(tmp_path):
    pytest.importorskip("openvino")
    path = export_file(tmp_path / "model", linear_source(Point()), format="openvino")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.bin", "model.xml", "model.xml.json"]
    assert path.name == "model.xml"


@pytest.mark.slow
def test_an_operator_that_openvino_lacks_is_told(tmp_path, monkeypatch):
    openvino = pytest.importorskip("openvino")

    def lacking(path):
        raise RuntimeError("OpenVINO does not support Bessel\nand more")

    monkeypatch.setattr(openvino, "convert_model", lacking)
    with pytest.raises(pl.ExportError, match=r"counterpart in OpenVINO, got .* support Bessel\. Export to"):
        export_file(tmp_path / "model", linear_source(Point()), format="openvino")
    assert list(tmp_path.iterdir()) == []
