"""Reading frozen ensembles: the same predictions without the network's class, and nothing hostile."""

import json

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.methods import DeepEnsembles, MCDropout, Single
from tests.cases import case_named, normal, run
from tests.zoo import residual_cnn

images = normal(2, 8, 8)()


@pytest.mark.parametrize("method", [DeepEnsembles(members=2), MCDropout(draws=3)], ids=str)
def test_a_frozen_ensemble_comes_back(method, tmp_path):
    ensemble = pl.convert(residual_cnn().double(), method, example=images)
    y = torch.arange(len(images)) % 3
    ensemble.eval().calibrate((images, y), shifted=None)
    frozen = ensemble.freeze()
    frozen.save(tmp_path / "frozen")
    again = pl.load_frozen(tmp_path / "frozen")
    assert_close(again(images), frozen(images), rtol=0, atol=0)
    assert_close(again.predict(images).probabilities, frozen.predict(images).probabilities)
    assert (again.notes, again.likelihood, again.input_names) == (frozen.notes, frozen.likelihood, ("input",))
    assert str(again.explain(images)) == str(frozen.explain(images))
    assert pl.cost(again, images) == pl.cost(frozen, images)
    strides = [[tensor.stride() for tensor in one.state_dict().values()] for one in (again, frozen)]
    assert strides[0] == strides[1]
    with pytest.raises(pl.InputError, match="frozen for"):
        again(images.float())


def test_keyword_inputs_come_back(tmp_path):
    case = case_named("keywords")
    frozen = pl.convert(case.model(), DeepEnsembles(members=2), example=case.inputs()).freeze()
    frozen.save(tmp_path / "frozen")
    again = pl.load_frozen(tmp_path / "frozen")
    assert again.input_names == frozen.input_names == ("image", "age")
    assert_close(run(again, case.inputs()), run(frozen, case.inputs()), rtol=0, atol=0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frozen") / "frozen"
    network = nn.Sequential(nn.Linear(80, 80), nn.ReLU(), nn.Linear(80, 3))
    pl.convert(network, MCDropout(draws=3), example=torch.zeros(2, 80)).freeze().save(folder)
    return folder


def set_at(document, path, value):
    *parents, last = path
    for name in parents:
        document = document[name]
    document[last] = value


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (["graphs"], [], "at least one graph"),
        (["graphs", 0, "nodes", 1, "operator"], "os.system", "known operator"),
        (["graphs", 0, "nodes"], [{"does": "import", "name": "os"}], "must be input, read"),
        (["graphs", 0, "kind", "places"], [7], "places must be below 1"),
        (["graphs", 0, "kind", "places"], [0, 0], "name the 1 inputs"),
        (["graphs", 0, "kind", "names"], [], "name the 1 inputs"),
        (["graphs", 0, "kind", "forms", 0], {"value": 1}, "must be a tensor"),
        (["graphs", 0, "kind", "forms", 0, "sizes"], [None, 10**12], "must take at most"),
        (["graphs", 0, "kind", "forms", 0, "dtype"], "object", "dtype must be one of"),
        (["weights"], [0.5, 0.1], "sum to one"),
        (["likelihood"], {"kind": "oracle"}, "damaged or foreign"),
        (["likelihood"], "categorical", "settings must be an object"),
        (["graphs", 0, "nodes", -1, "value"], 0.5, "must be a tensor, got 0.5"),
        (["tensors"], {}, "tensors of field tensors"),
        (["version"], 99, "version from 1 to 2"),
        (["format"], "pluribus ensemble", "must have the format"),
        (["more"], 1, "unknown"),
    ],
    ids=str,
)
def test_damaged_files_are_refused(saved, tmp_path, path, value, reason):
    document = json.loads((saved / "frozen.json").read_text())
    calls = [place for place, node in enumerate(document["graphs"][0]["nodes"]) if node["does"] == "call"]
    set_at(document, [calls[0] if part == 1 else part for part in path], value)
    (tmp_path / "frozen.json").write_text(json.dumps(document))
    (tmp_path / "weights.safetensors").write_bytes((saved / "weights.safetensors").read_bytes())
    with pytest.raises(pl.CheckpointError, match=reason):
        pl.load_frozen(tmp_path)


def first_call(document, operator):
    nodes = document["graphs"][0]["nodes"]
    return next(node for node in nodes if node.get("operator") == operator)


@pytest.mark.parametrize(
    ("operator", "place", "value"),
    [
        # A number that is no tensor, an axis that is not there, a weight of other sizes.
        ("aten.relu.default", 0, 7),
        ("aten.transpose.int", 1, 9),
        ("aten.linear.default", 1, {"node": 0}),
    ],
)
@pytest.mark.parametrize("run", ["call", "predict", "explain", "cost", "memory"])
def test_a_damaged_graph_that_fails_when_it_runs_is_an_error_of_ours(operator, place, value, run, tmp_path):
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(6, 9), nn.Linear(9, 3)

        def forward(self, x):
            hidden = torch.relu(self.first(x))
            return self.last(hidden.transpose(0, 1).reshape(len(x), 9))

    x = torch.randn(4, 6)
    ensemble = pl.convert(Turned(), Single(), example=x)
    ensemble.freeze(memory=1 << 20 if run == "memory" else None).save(tmp_path / "frozen")
    file = tmp_path / "frozen" / "frozen.json"
    document = json.loads(file.read_text())
    del document["sha256"]
    first_call(document, operator)["args"][place] = value
    file.write_text(json.dumps(document))
    again = pl.load_frozen(tmp_path / "frozen")
    runs = {
        "call": again,
        "predict": again.predict,
        "explain": again.explain,
        "cost": lambda x: pl.cost(again, x),
        "memory": again.predict,
    }
    with pytest.raises(pl.InputError, match="the frozen ensemble failed on"):
        runs[run](x)


@pytest.mark.parametrize("change", [{"shape": [10**12]}, {"values": [1.0]}, {"dtype": "int64"}], ids=str)
def test_masks_fit_their_bits(saved, tmp_path, change):
    document = json.loads((saved / "frozen.json").read_text())
    packed = [form for form in document["tensors"].values() if form["bits"]]
    packed[0]["bits"] |= change
    (tmp_path / "frozen.json").write_text(json.dumps(document))
    (tmp_path / "weights.safetensors").write_bytes((saved / "weights.safetensors").read_bytes())
    with pytest.raises(pl.CheckpointError, match="bits"):
        pl.load_frozen(tmp_path)
