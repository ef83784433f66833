"""Fingerprints tell networks apart by what they compute, and never by their weights."""

import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus.fingerprint import SCHEMA, difference, digest, fingerprint
from pluribus.methods import (
    EMP,
    SAE,
    BatchEnsemble,
    DeepEnsembles,
    LayerEnsembles,
    Masksembles,
    MCDropout,
    PackedEnsembles,
    Single,
)

X = torch.zeros(5, 6)


class Net(nn.Module):
    """A network whose forward can be exchanged."""

    def __init__(self, activation=torch.relu, width=8):
        super().__init__()
        self.first, self.norm = nn.Linear(6, width), nn.BatchNorm1d(width)
        self.middle, self.last = nn.Linear(width, width), nn.Linear(width, 3)
        self.activation = activation

    def forward(self, x):
        hidden = self.activation(self.norm(self.first(x)))
        return self.last(self.activation(self.middle(hidden)))


def of(network, method=None, **changes):
    ensemble = pl.convert(network, method or Single(), example=torch.randn(2, 6), **changes)
    return fingerprint(ensemble, X)


METHODS = [
    Single(),
    DeepEnsembles(members=2, prior_scale=0.5),
    BatchEnsemble(members=2),
    MCDropout(rate=0.3, draws=2),
    EMP(options=2),
    LayerEnsembles(options=2),
    Masksembles(members=2),
    PackedEnsembles(members=2),
    SAE(inputs=2),
]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_fingerprint_follows_the_forward_and_not_the_weights(method):
    first, again, other = of(Net(), method), of(Net(), method), of(Net(torch.tanh), method)
    SCHEMA.check(first, "")
    assert difference(first, again) == ""
    assert "its forward computes something else" in difference(first, other)
    assert first["outputs"]["eval"]


def test_fingerprint_names_another_class_layer_and_shape():
    first = of(Net())
    assert "its class was Net and is Linear" in difference(first, of(nn.Linear(6, 3)))
    assert "first was Linear(in_features=6, out_features=8, bias=True) and is Linear" in difference(
        first, of(Net(width=9))
    )


def test_fingerprint_survives_training():
    ensemble = pl.convert(Net(), DeepEnsembles(members=2))
    before, weights = fingerprint(ensemble, X), [p.clone() for p in ensemble.parameters()]
    for parameter, weight in zip(ensemble.parameters(), weights, strict=True):
        assert torch.equal(parameter, weight)
    ensemble.train()(torch.randn(4, 6))
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter.add_(1)
    assert difference(before, fingerprint(ensemble, X)) == ""


def test_fingerprint_draws_no_random_numbers():
    ensemble = pl.convert(Net(), MCDropout(draws=2))
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    fingerprint(ensemble, X)
    assert torch.equal(torch.rand(2), expected)


def test_a_network_that_does_not_run_alone_is_compared_by_layers_and_tensors():
    ensemble = pl.convert(Net(), Single())
    wrong = torch.zeros(5, 7)
    found = fingerprint(ensemble, wrong)
    assert found["outputs"] == {"eval": [], "train": []}
    assert difference(found, fingerprint(ensemble, wrong)) == ""


class SinglePrecision(Net):
    """A network that refuses float64."""

    def forward(self, x):
        return super().forward(x.float() if x.dtype == torch.float32 else x.half())


def test_digest_follows_the_forward_and_not_the_weights():
    for kind in (Net, SinglePrecision):
        found = [
            digest(pl.convert(kind(activation), Single(), example=torch.randn(2, 6)), X)
            for activation in (torch.relu, torch.relu, torch.tanh)
        ]
        assert found[0] == found[1] != found[2]


def test_digest_changes_nothing():
    ensemble = pl.convert(Net(), BatchEnsemble(members=2), example=torch.randn(2, 6))
    before = {name: tensor.clone() for name, tensor in ensemble.state_dict().items()}
    digest(ensemble, X)
    for name, tensor in ensemble.state_dict().items():
        assert torch.equal(tensor, before[name])
