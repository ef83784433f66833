"""The description tells inputs, outputs and where the file comes from."""

import json

from pluribus.export.description import describe
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
