"""PyTorch 2 files run without this library, called as the network is."""

import json

import torch
from torch.testing import assert_close

from pluribus.export.exporting import export_file
from tests.export.sources import linear_source


def test_a_file_is_read_by_torch_alone_and_tells_what_it_is(tmp_path):
    source = linear_source()
    path = export_file(tmp_path / "model", source, format="pt2")
    extra = {"pluribus.json": ""}
    module = torch.export.load(path, extra_files=extra).module()
    x = torch.randn(5, 4)
    assert_close(module(x)["probabilities"], source.predict(type(source.example).of(x)).probabilities)
    assert json.loads(extra["pluribus.json"])["method"] == {"kind": "three"}
