"""Exported files: read, checked, run, and probed for samples that affect one another."""

import json
import sys

import numpy as np
import onnx
import pytest

from pluribus.errors import CheckpointError, ExportError
from pluribus.serving.exported import Exported, find_file
from tests.serving.files import class_file, expected, mixing_file, token_file, write


def test_a_file_runs_and_gives_its_outputs_by_name(tmp_path):
    exported = Exported(class_file(tmp_path / "m.onnx"), threads=1)
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    outputs = exported.run({"x": x})
    for name, value in expected(x).items():
        np.testing.assert_allclose(outputs[name], value, rtol=1e-5, atol=1e-6)
    assert exported.batches
    assert exported.outputs["labels"] == "int64"


def test_a_folder_with_one_file_names_it(tmp_path):
    path = class_file(tmp_path / "m.onnx")
    assert find_file(tmp_path) == path
    class_file(tmp_path / "n.onnx")
    with pytest.raises(CheckpointError, match=r"must hold one \.onnx file, got m\.onnx, n\.onnx"):
        find_file(tmp_path)


def test_other_paths_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="got no file"):
        find_file(tmp_path / "nothing.onnx")
    (tmp_path / "m.pt2").touch()
    with pytest.raises(CheckpointError, match=r"runs \.onnx files, got m\.pt2"):
        find_file(tmp_path / "m.pt2")


def test_the_description_inside_is_read_where_there_is_none_beside(tmp_path):
    path = class_file(tmp_path / "m.onnx")
    (tmp_path / "m.onnx.json").unlink()
    assert Exported(path, 1).description["classes"] == ["cat", "dog", "cow"]


def test_texts_that_are_no_utf_8_are_refused(tmp_path):
    path = class_file(tmp_path / "m.onnx")
    (tmp_path / "m.onnx.json").unlink()
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b'"cat"', b'"c\xcdt"'))
    assert path.read_bytes() != raw
    with pytest.raises(CheckpointError, match="must hold texts in UTF-8"):
        Exported(path, 1)


def test_a_file_that_fails_on_every_sample_is_refused(tmp_path):
    nodes = [onnx.helper.make_node("Reshape", ["x", "sizes"], ["mean"])]
    given = {"x": ("float32", ["batch", 4])}
    held = {"sizes": np.array([5, 7])}
    path = write(tmp_path / "m.onnx", nodes, held, given, {"mean": "float32"}, {"mean": ["batch", 7]})
    with pytest.raises(CheckpointError, match="must run on a sample, got"):
        Exported(path, 1)


def test_an_exchanged_file_is_refused(tmp_path):
    path = class_file(tmp_path / "m.onnx")
    token_file(tmp_path / "other.onnx").replace(path)
    with pytest.raises(CheckpointError, match="got another hash"):
        Exported(path, 1)


def test_a_damaged_file_is_refused_before_onnxruntime_parses_it(tmp_path, monkeypatch):
    path = class_file(tmp_path / "m.onnx")
    path.write_bytes(path.read_bytes()[:-1])
    monkeypatch.setattr("pluribus.serving.exported._session", None)
    with pytest.raises(CheckpointError, match="got another hash"):
        Exported(path, 1)


def test_damaged_and_foreign_files_are_refused(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"no graph")
    with pytest.raises(CheckpointError, match="must be an ONNX file"):
        Exported(path, 1)
    model = onnx.load(class_file(path))
    del model.metadata_props[:]
    (tmp_path / "m.onnx.json").unlink()
    onnx.save(model, path)
    with pytest.raises(CheckpointError, match="got a foreign one"):
        Exported(path, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 9}, "field version must be a whole number"),
        ({"inputs": [{"name": "y", "dtype": "float32", "shape": ["batch"]}]}, "must have the inputs of its"),
        ({"classes": [1]}, "classes"),
        ({"reference_scores": ["a"]}, "reference_scores"),
    ],
)
def test_a_wrong_description_is_refused(changes, message, tmp_path):
    path = class_file(tmp_path / "m.onnx")
    beside = tmp_path / "m.onnx.json"
    beside.write_text(json.dumps(json.loads(beside.read_text()) | changes))
    with pytest.raises(CheckpointError, match=message):
        Exported(path, 1)


def test_samples_that_affect_one_another_are_found(tmp_path):
    assert not Exported(mixing_file(tmp_path / "m.onnx"), 1).batches


def test_a_monitor_needs_scores_of_validation_samples(tmp_path):
    assert Exported(class_file(tmp_path / "m.onnx"), 1).monitor(0.05).level == 0.05
    assert Exported(class_file(tmp_path / "n.onnx", reference_scores=None), 1).monitor(0.05) is None


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    path = class_file(tmp_path / "m.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ExportError, match=r"needs onnxruntime, got none.*pluribus\[serve\]"):
        Exported(path, 1)
