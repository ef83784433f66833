"""The description that `pluribus export` writes has what a server needs, and its schema accepts it."""

import json

from pluribus.export.description import DOCUMENT, FORMAT, describe
from pluribus.export.head import Pooled
from pluribus.export.onnx import Onnx
from pluribus.serving.export_description import FORMAT as READ
from pluribus.serving.export_description import SCHEMA
from tests.export.sources import linear_source


def test_the_schema_accepts_what_export_writes():
    source = linear_source()
    written = describe(source, Pooled(source, False, 0.9), Onnx(), {"image": {0: "batch"}})
    SCHEMA.check(json.loads(json.dumps(written)), "")
    assert (READ, DOCUMENT) == (FORMAT, 1)
