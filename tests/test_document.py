"""ensemble.json is checked before anything is built from it."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import pluribus as pl
from pluribus.methods import DeepEnsembles, Masksembles

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def folder(tmp_path):
    pl.convert(nn.Linear(3, 2), DeepEnsembles(members=2)).save(tmp_path / "run")
    return tmp_path / "run"


def edit(folder, change):
    file = folder / "ensemble.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


EDITS = {
    "a network that is a number": (lambda d: d.update(network=3), "field network must be a text"),
    "no method": (lambda d: d.pop("method"), "field method is missing"),
    "a method that is a list": (lambda d: d.update(method=[]), "field method must be an object"),
    "an unknown method": (lambda d: d["method"].update(kind="os:system"), "kind must be one of"),
    "members of another type": (lambda d: d["method"].update(members="2"), "members must be a whole number"),
    "five thousand members": (
        lambda d: d["method"].update(members=5000),
        r"method\.members must be at most 3, ",
    ),
    "a billion members": (
        lambda d: d["method"].update(members=10**9),
        "members must be at most 10000, got 1000000000",
    ),
    "a start that is an object": (lambda d: d["method"].update(start={"a": 1}), "start must be one of"),
    "a selection of numbers": (lambda d: d.update(selection=[3]), r"selection\[0\] must be an object"),
    "rows that are texts": (lambda d: d.update(shrunk_to=["a"]), r"shrunk_to\[0\] must be a whole number"),
    "rows that there are not": (lambda d: d.update(shrunk_to=[7]), "rows must be positions from 0 to 1"),
    "a ranking of texts": (
        lambda d: d.update(ranking={"order": ["a"], "scores": [1], "metric": "nll"}),
        r"ranking.order\[0\] must be a whole number",
    ),
    "a seed below zero": (lambda d: d.update(seed=-1), "field seed must be a whole number"),
    "deep nesting": (lambda d: d.update(output=nested(500)), "at most 64 nested brackets"),
    "a foreign hash": (lambda d: d.update(sha256=3), "field sha256 must be an object"),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_damaged_document_is_refused(name, folder):
    change, says = EDITS[name]
    edit(folder, change)
    with pytest.raises(pl.PluribusError, match=says):
        pl.load(folder, nn.Linear(3, 2))


def test_a_document_without_hashes_loads(folder):
    expected = pl.load(folder, nn.Linear(3, 2))(X)
    edit(folder, lambda d: d.pop("sha256"))
    assert torch.equal(pl.load(folder, nn.Linear(3, 2))(X), expected)


WEIGHTS = {
    "integers": (lambda t: t.long(), "got torch.int64"),
    "NaN": (lambda t: torch.full_like(t, torch.nan), "6 of 12|12 of 12 numbers of .* that are NaN"),
    "another float": (lambda t: t.double(), "got torch.float64"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_are_no_weights_are_refused(name, folder):
    change, says = WEIGHTS[name]
    tensors = load_file(folder / "weights.safetensors")
    weight = next(name for name, tensor in tensors.items() if tensor.ndim == 3)
    save_file(tensors | {weight: change(tensors[weight])}, folder / "weights.safetensors")
    edit(folder, lambda d: d.pop("sha256", None))
    with pytest.raises(pl.CheckpointError, match=says):
        pl.load(folder, nn.Linear(3, 2))


def test_weights_of_another_hash_are_refused(folder):
    tensors = load_file(folder / "weights.safetensors")
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, folder / "weights.safetensors")
    with pytest.raises(pl.CheckpointError, match="got another hash"):
        pl.load(folder, nn.Linear(3, 2))


class Routed(nn.Module):
    """A mixture of experts: the weights decide which of them run."""

    def __init__(self, chosen):
        super().__init__()
        self.gate = nn.Parameter(torch.eye(2)[chosen])
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)) for _ in range(2)
        )

    def forward(self, x):
        return self.experts[int(self.gate.argmax())](x)


def test_a_network_that_routes_by_its_weights_is_loaded_with_fresh_ones(tmp_path):
    one = pl.convert(Routed(0), Masksembles(members=2), example=X, include="experts.*").eval()
    one.save(tmp_path / "run")
    loaded = pl.load(tmp_path / "run", Routed(1), example=X)
    assert torch.equal(loaded(X), one(X))
