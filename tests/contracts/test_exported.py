"""Every method exports to every format, and the file predicts what the ensemble predicts."""

import copy
import json
import re
from dataclasses import fields, replace
from functools import lru_cache

import onnx
import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus.distance import fit_distance
from pluribus.methods import (
    EMP,
    BatchEnsemble,
    DeepEnsembles,
    DeepSubEnsembles,
    DropConnect,
    LayerEnsembles,
    LoRAEnsembles,
    MCDropout,
    Single,
)
from tests.cases import case_named
from tests.perturb import perturbed


def slow(methods):
    return [pytest.param(method, marks=pytest.mark.slow) for method in methods]


SMALL = {"members": 2, "draws": 2, "prior_scale": 0.5}


def small(kind: type[pl.Method]) -> pl.Method:
    """Return a method with few members; members that may have a prior network have one."""
    names = {one.name for one in fields(kind)}
    return kind(**{name: value for name, value in SMALL.items() if name in names})


METHODS = {kind.__name__: small(kind) for kind in pl.Method.known().values()}


def mlp() -> nn.Module:
    hidden = [nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(24, 3))


def cnn() -> nn.Module:
    layers = list[nn.Module]()
    for channels, wider in ((2, 8), (8, 16), (16, 16)):
        layers += [nn.Conv2d(channels, wider, 3, padding=1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3))


def resnet18() -> nn.Module:
    # Narrow: files of the full width have the same operators, and take far longer to write.
    return pl.backbones.resnet18(in_channels=3, classes=4, width=8)


NETWORKS = {
    "mlp": (mlp, lambda: torch.randn(4, 6)),
    "cnn": (cnn, lambda: torch.randn(4, 2, 8, 8)),
    "resnet18": (resnet18, lambda: torch.randn(2, 3, 16, 16)),
    "hf_vit": (case_named("hf_vit").build, lambda: {"pixel_values": torch.randn(4, 3, 8, 8)}),
    "hf_bert": (case_named("hf_bert").build, case_named("hf_bert").inputs),
    "monai_unet": (case_named("monai_unet").build, lambda: torch.randn(4, 1, 16, 16)),
}


# One ensemble is exported to several formats, one after the other.
@lru_cache(maxsize=1)
def converted(network: str, method: pl.Method) -> pl.Ensemble:
    """Return an ensemble whose members and statistics differ, in float32. Copy it to change it."""
    build, inputs = NETWORKS[network]
    torch.manual_seed(0)
    ensemble = pl.convert(build(), method, example=inputs()).float()
    for step in range(3):
        # SWAG keeps snapshots of its weights; other methods do nothing here.
        perturbed(ensemble, seed=step).after_step(1.0)
    # Laplace sees the training data.
    ensemble.finish([inputs()])
    return ensemble.eval()


QUICK = [("PackedEnsembles", "cnn", "onnx"), ("MCDropout", "mlp", "pt2"), ("SAE", "mlp", "pt2")]
EVERY = [(method, network, form) for method in METHODS for network in NETWORKS for form in ("onnx", "pt2")]
SLOW = [pytest.param(*case, marks=pytest.mark.slow) for case in EVERY if case not in QUICK]


# By method and network, the beginning of the reason why there is no such ensemble. Every other one exports.
REFUSED = {
    (
        "Laplace",
        "monai_unet",
    ): "Laplace must have a linear layer or a 1x1 convolution as the last",
}


@pytest.mark.parametrize(("method", "network", "form"), [*QUICK, *SLOW])
def test_a_file_predicts_what_the_ensemble_predicts(method, network, form, tmp_path):
    refusal = REFUSED.get((method, network))
    if refusal is not None:
        with pytest.raises(pl.ConversionError, match=re.escape(refusal)):
            converted(network, METHODS[method])
        return
    path = converted(network, METHODS[method]).export(tmp_path / "model", form)
    # The file ran twice at each size of batch and was compared with predict, or would not be there.
    verified = json.loads((tmp_path / f"{path.name}.json").read_text())["verified"]
    assert [call.partition("[")[2].partition(",")[0] for call in verified["calls"]] == ["1", "2", "7"]
    assert max(verified["largest_difference"].values()) <= verified["tolerance"] == 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("method", ["BatchEnsemble", "MCDropout", "PackedEnsembles", "EarlyExit"])
def test_a_sample_exports_to_openvino(method, network, tmp_path):
    pytest.importorskip("openvino")
    assert (method, network) not in REFUSED
    path = converted(network, METHODS[method]).export(tmp_path / "model", "openvino")
    verified = json.loads((tmp_path / f"{path.name}.json").read_text())["verified"]
    assert max(verified["largest_difference"].values()) <= verified["tolerance"] == 5e-5


SHARING = [
    BatchEnsemble(members=4),
    *slow([EMP(options=3, draws=4)]),
    *slow([MCDropout(rate=0.2, draws=4), LayerEnsembles(options=2, draws=4), DeepSubEnsembles(members=3)]),
    *slow([LoRAEnsembles(members=4, rank=2)]),
]


def exported_bytes(method, tmp_path):
    """Return the bytes of the tensors in an exported file, and those of the ensemble."""
    network = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 8))
    ensemble = pl.convert(network, method, example=torch.randn(2, 32)).eval()
    tensors = onnx.load(ensemble.export(tmp_path / "model")).graph.initializer
    stored = sum(onnx.numpy_helper.to_array(tensor).nbytes for tensor in tensors)
    return stored, sum(tensor.nbytes for tensor in [*ensemble.parameters(), *ensemble.buffers()])


@pytest.mark.parametrize("method", SHARING, ids=lambda method: type(method).__name__)
def test_shared_weights_are_stored_once(method, tmp_path):
    stored, held = exported_bytes(method, tmp_path)
    # Kept draws and the constants of the summaries are the rest.
    assert stored <= 1.1 * held


@pytest.mark.slow
def test_draws_of_weights_are_a_byte_for_each_weight(tmp_path):
    stored, held = exported_bytes(DropConnect(draws=8), tmp_path)
    assert stored <= 1.1 * held + 8 * held / 4


def test_keyword_inputs_keep_their_names_and_the_order_of_forward(tmp_path):
    case = case_named("keywords")
    inputs = {name: tensor.float() for name, tensor in case.inputs().items()}
    ensemble = pl.convert(case.model().float(), DeepEnsembles(members=2), example=inputs).eval()
    path = ensemble.freeze().export(tmp_path / "model", "pt2", members=True)
    module = torch.export.load(path).module()
    assert module(inputs["image"], inputs["age"])["members"].shape == (2, 10, 3)
    found = json.loads((tmp_path / "model.pt2.json").read_text())
    assert [one["name"] for one in found["inputs"]] == ["image", "age"]


def test_networks_that_are_no_graph_are_refused_with_the_reason(tmp_path):
    case = case_named("data_dependent")
    ensemble = pl.convert(case.model(), DeepEnsembles(members=2), example=case.inputs()).eval()
    with pytest.raises(pl.ExportError, match="must be one graph to be exported, got: members are looped"):
        ensemble.export(tmp_path / "model", "pt2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_dynamic_sizes_are_taken_where_the_network_allows(tmp_path):
    ensemble = converted("cnn", DeepEnsembles(members=2))
    path = ensemble.export(tmp_path / "model", dynamic={"input": {2: "height", 3: "width"}})
    found = json.loads((tmp_path / f"{path.name}.json").read_text())
    assert found["inputs"][0]["shape"] == ["batch", 2, "height", "width"]
    assert len(found["verified"]["calls"]) == 4
    with pytest.raises(pl.ExportError):
        converted("mlp", Single()).export(tmp_path / "other", dynamic={"input": {1: "width"}})


class Text(nn.Module):
    """Attention with positions: its code cuts heads by the length of the text."""

    def __init__(self):
        super().__init__()
        self.words, self.positions, self.head = nn.Embedding(20, 8), nn.Embedding(12, 8), nn.Linear(8, 3)

    def forward(self, tokens):
        count, length = tokens.shape
        heads = self.words(tokens) + self.positions.weight[:length]
        heads = heads.view(count, length, 2, 4).transpose(1, 2)
        found = nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return self.head(found.transpose(1, 2).reshape(count, length, 8).mean(1))


def test_the_length_of_a_text_is_free_up_to_its_positions(tmp_path):
    tokens = torch.randint(20, (4, 7))
    ensemble = pl.convert(Text(), EMP(options=2, draws=3), example=tokens).eval()
    dynamic = {"tokens": {1: "length"}}
    with pytest.raises(pl.ExportError, match=r"'length', axis 1 .*, here 7\. Export the ensemble"):
        ensemble.freeze().export(tmp_path / "frozen", "pt2", dynamic=dynamic)
    path = ensemble.export(tmp_path / "model", "pt2", dynamic=dynamic)
    found = json.loads((tmp_path / f"{path.name}.json").read_text())
    assert found["sizes"]["length"]["at_most"] == 12
    longer = torch.randint(20, (5, 11))
    outputs = torch.export.load(path).module()(longer)
    torch.testing.assert_close(outputs["probabilities"], ensemble.predict(longer).probabilities)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["PackedEnsembles", "LayerEnsembles", "Masksembles", "EarlyExit", "MIMO"])
@pytest.mark.parametrize("form", ["onnx", "pt2"])
def test_the_length_of_texts_for_a_bert_is_free(method, form, tmp_path):
    ensemble = converted("hf_bert", METHODS[method])
    names = ensemble.freeze().input_names
    path = ensemble.export(tmp_path / "model", form, dynamic={name: {1: "length"} for name in names})
    found = json.loads((tmp_path / f"{path.name}.json").read_text())
    assert all(one["shape"] == ["batch", "length"] for one in found["inputs"])
    assert len(found["verified"]["calls"]) == 4


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "pt2"])
def test_dynamic_sizes_of_a_unet_are_multiples(form, tmp_path):
    # A height of 4 is none that torch reads as free, so that the file is checked with doubled sizes.
    unet = NETWORKS["monai_unet"][0]()
    ensemble = pl.convert(unet, DeepEnsembles(members=2), example=torch.randn(4, 1, 8, 16)).float().eval()
    name = ensemble.freeze().input_names[0]
    path = ensemble.export(tmp_path / "model", form, dynamic={name: {2: "height", 3: "width"}})
    found = json.loads((tmp_path / f"{path.name}.json").read_text())
    assert {size: rule["multiple_of"] for size, rule in found["sizes"].items()} == {"height": 4, "width": 4}
    assert found["verified"]["calls"][-1] == "(float32[2, 1, 16, 32])"


@pytest.mark.slow
def test_dynamic_sizes_of_a_network_with_strides_have_a_least_one(tmp_path):
    ensemble = converted("resnet18", Single())
    path = ensemble.export(tmp_path / "model", dynamic={"input": {2: "height", 3: "width"}})
    found = json.loads((tmp_path / f"{path.name}.json").read_text())
    assert found["sizes"]["height"] == {"multiple_of": 1, "at_least": 9}
    assert found["verified"]["calls"][-1] == "(float32[2, 3, 32, 32])"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "pt2", "openvino"])
@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian", "point"])
def test_every_likelihood_exports(likelihood, form, tmp_path):
    network = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
    method = EMP(options=3, draws=20)  # rows that were drawn more often count more
    ensemble = pl.convert(network, method, likelihood, example=torch.randn(4, 6)).eval()
    assert ensemble.export(tmp_path / "model", form, members=True).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "pt2"])
@pytest.mark.parametrize("score", ["mahalanobis", "max_logit", "variation_ratio", "mutual_information"])
def test_a_calibrated_ensemble_exports_sets_and_flags(score, form, tmp_path):
    ensemble = copy.deepcopy(converted("mlp", DeepEnsembles(members=2)))
    x, y = torch.randn(60, 6), torch.arange(60) % 3
    ensemble.calibrate((x, y), shifted=None)
    means, whitening = fit_distance(ensemble(x).double().movedim(0, 1).flatten(1).detach(), y)
    chosen = replace(ensemble.calibration, score=score, threshold=0.5, means=means, whitening=whitening)
    ensemble.calibration = chosen
    path = ensemble.export(tmp_path / "model", form)
    found = json.loads((tmp_path / f"{path.name}.json").read_text())
    assert {"set", "ood_score", "flagged"} <= {one["name"] for one in found["outputs"]}
    assert found["calibration"]["score"] == score
