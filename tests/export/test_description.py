"""The description tells inputs, outputs and where the file comes from."""

import hashlib
import json

import pytest
import torch

import pluribus as pl
from pluribus.calibration_record import Calibration
from pluribus.export.description import check_description, describe
from pluribus.export.head import Pooled
from pluribus.export.pt2 import PT2
from pluribus.likelihood import Gaussian
from pluribus.version import VERSION
from tests.export.sources import linear_source


def test_description_tells_inputs_outputs_and_origin():
    source = linear_source(Gaussian())
    found = describe(source, Pooled(source, False, 0.8), PT2(), {"image": {0: "batch", 1: "width"}})
    assert json.loads(json.dumps(found)) == found
    assert found["inputs"] == [{"name": "image", "dtype": "float32", "shape": ["batch", "width"]}]
    assert [one["name"] for one in found["outputs"]][:2] == ["mean", "variance"]
    assert all(one["meaning"] for one in found["outputs"])
    assert found["level"] == 0.8
    assert found["method"] == {"kind": "three"}
    assert found["made_with"]["pluribus"] == VERSION


def test_description_of_classes_has_no_level():
    source = linear_source()
    assert describe(source, Pooled(source, False, 0.8), PT2(), {"image": {0: "batch"}})["level"] is None


def test_description_holds_the_scores_of_validation_samples():
    reference = torch.tensor([0.1, 1 / 3, 2.0], dtype=torch.float64)
    calibration = Calibration(score="entropy", threshold=1.0, reference=reference)
    source = linear_source(calibration=calibration)
    found = describe(source, Pooled(source, False, 0.8), PT2(), {"image": {0: "batch"}})
    assert found["reference_scores"] == [0.1, 0.333333333, 2.0]
    plain = linear_source()
    assert (
        describe(plain, Pooled(plain, False, 0.8), PT2(), {"image": {0: "batch"}})["reference_scores"] is None
    )


def written(folder, content=b"graph", **changes):
    """Return the description of a file, with some of its fields changed."""
    (folder / "model.onnx").write_bytes(content)
    document = {"format": "pluribus export", "version": 1, "sha256": hashlib.sha256(b"graph").hexdigest()}
    path = folder / "model.onnx.json"
    path.write_text(json.dumps(document | changes))
    return path


def test_a_description_belongs_to_the_file_beside_it(tmp_path):
    path = written(tmp_path)
    check_description(path)
    (tmp_path / "model.onnx").unlink()
    with pytest.raises(pl.CheckpointError, match=r"must lie beside model\.onnx, got no such file"):
        check_description(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"content": b"other"}, "got another hash"),
        ({"format": "something"}, "must have the format 'pluribus export', got 'something'"),
        ({"version": 2}, "field version must be a whole number"),
        ({"sha256": "x"}, "field sha256 must be a SHA-256"),
    ],
)
def test_a_foreign_or_damaged_file_is_told(changes, message, tmp_path):
    with pytest.raises(pl.CheckpointError, match=message):
        check_description(written(tmp_path, **changes))
