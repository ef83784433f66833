"""ONNX files: names, description, weights stored once, errors."""

import json
import sys

import onnx
import onnxruntime
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.export.exporting import export_file
from pluribus.export.onnx import Onnx
from pluribus.likelihood import Gaussian
from tests.export.sources import linear_source


class Factors(nn.Module):
    """Three members that share one weight, each with a factor of its own."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 300))
        self.factors = nn.Parameter(torch.rand(3, 4))
        self.last = nn.Parameter(torch.randn(300, 4))

    def forward(self, image):
        return torch.stack(
            [image @ (self.weight * factor.unsqueeze(1)) @ self.last for factor in self.factors]
        )


def test_shared_weights_are_stored_once_and_the_file_tells_what_it_is(tmp_path):
    source = linear_source(Gaussian(precision=1.0), Factors())
    path = export_file(tmp_path / "model", source)
    model = onnx.load(path)
    stored = sum(onnx.numpy_helper.to_array(tensor).size for tensor in model.graph.initializer)
    numbers = sum(parameter.numel() for parameter in source.module.parameters())
    # The rest are constants of the pooled outputs and of the interval.
    assert numbers <= stored <= numbers + 150
    (entry,) = model.metadata_props
    assert json.loads(entry.value)["method"] == {"kind": "three"}
    assert b"/" + b"tests" not in path.read_bytes()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == ["image"]
    assert session.get_inputs()[0].shape == ["batch", 4]
    x = torch.randn(5, 4)
    (mean,) = session.run(["mean"], {"image": x.numpy()})
    assert_close(torch.as_tensor(mean), source.predict(type(source.example).of(x)).mean, rtol=1e-5, atol=1e-5)


def test_a_missing_package_is_named_with_its_install_line(monkeypatch):
    # None in the table of modules is what Python takes for a module that cannot be imported.
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(pl.ExportError, match=r"got no onnxruntime\. Install them: pip install 'pluribus"):
        Onnx().load_packages()


class Unknown(nn.Module):
    def forward(self, image):
        return torch.special.spherical_bessel_j0(image).expand(3, -1, -1)


def test_an_operator_that_onnx_lacks_is_told(tmp_path):
    with pytest.raises(pl.ExportError, match=r"must have a counterpart in ONNX.*format='pt2'"):
        export_file(tmp_path / "model", linear_source(module=Unknown()))
    assert list(tmp_path.iterdir()) == []
