"""ONNX files: names, description, weights stored once, errors."""

import json
import sys
from itertools import pairwise

import onnx
import onnxruntime
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.export.exporting import export_file
from pluribus.export.head import Pooled
from pluribus.export.onnx import Onnx, convert_to_onnx
from pluribus.export.tracing import free_sizes, trace
from pluribus.methods import DropConnect, MCDropout
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
    source = linear_source(module=Factors())
    path = export_file(tmp_path / "model", source)
    model = onnx.load(path)
    stored = sum(onnx.numpy_helper.to_array(tensor).size for tensor in model.graph.initializer)
    numbers = sum(parameter.numel() for parameter in source.module.parameters())
    # The rest are member weights and constants of the pooled outputs.
    assert numbers <= stored <= numbers + 50
    (entry,) = model.metadata_props
    assert json.loads(entry.value)["method"] == {"kind": "three"}
    assert b"/" + b"tests" not in path.read_bytes()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == ["image"]
    assert session.get_inputs()[0].shape == ["batch", 4]
    x = torch.randn(5, 4)
    (entropy,) = session.run(["entropy"], {"image": x.numpy()})
    assert_close(
        torch.as_tensor(entropy), source.predict(type(source.example).of(x)).entropy, rtol=1e-5, atol=1e-5
    )


LAYERS = (24, 64, 64, 32)
SHARED = 4 * sum(inputs * outputs + outputs for inputs, outputs in pairwise(LAYERS))
DRAWS = 8
KEPT = {
    # A bit for each input of a layer and draw.
    MCDropout(rate=0.2, draws=DRAWS): DRAWS * sum(LAYERS[:-1]) // 8,
    # A bit for each weight and draw.
    DropConnect(draws=DRAWS): DRAWS * sum(inputs * outputs for inputs, outputs in pairwise(LAYERS)) // 8,
}


@pytest.mark.parametrize("method", KEPT, ids=lambda one: one.kind())
def test_kept_draws_take_a_bit_each(method, tmp_path):
    layers = list[nn.Module]()
    for inputs, outputs in pairwise(LAYERS):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    ensemble = pl.convert(nn.Sequential(*layers[:-1]), method, example=torch.randn(2, LAYERS[0]))
    model = onnx.load(ensemble.export(tmp_path / "model"))
    stored = sum(onnx.numpy_helper.to_array(tensor).nbytes for tensor in model.graph.initializer)
    # The table of bits takes 2 kB, and the place and the shape of each mask some numbers.
    assert SHARED + KEPT[method] < stored < SHARED + KEPT[method] + 2048 + 240 * DRAWS * len(LAYERS[1:])


def test_a_missing_package_is_named_with_its_install_line(monkeypatch):
    # None in the table of modules is what Python takes for a module that cannot be imported.
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(pl.ExportError, match=r"got no onnxruntime\. Install them: pip install 'pluribus"):
        Onnx().load_packages()


def test_an_operator_that_onnx_lacks_is_told(monkeypatch):
    def lacking(*args, **kwargs):
        raise RuntimeError("No ONNX function found for aten.special_bessel_j0")

    source = linear_source()
    program = trace(source, Pooled(source, False, 0.9), free_sizes(source, {}))
    monkeypatch.setattr(torch.onnx, "export", lacking)
    with pytest.raises(pl.ExportError, match=r"must have a counterpart.*bessel_j0.*format='pt2'"):
        convert_to_onnx(program)
