"""Trained networks: converted, they predict as each method promises."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import pluribus as pl
from pluribus import methods
from pluribus.comparison.diagnosis import doctor
from pluribus.method import ON_TRAINED

METHODS = [getattr(methods, name)() for name in methods.__all__]
CLASSES = 4


def blobs(count, seed):
    """Return points around one centre for each class, which overlap a little."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % CLASSES
    centres = 1.5 * torch.randn(CLASSES, 6, generator=torch.Generator().manual_seed(9))
    return centres[y] + torch.randn(count, 6, generator=generator), y


def network():
    def block(width):
        return nn.Sequential(nn.Linear(width, 24), nn.BatchNorm1d(24), nn.ReLU())

    return nn.Sequential(block(6), block(24), nn.Dropout(0.1), nn.Linear(24, CLASSES))


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    model, (x, y) = network(), blobs(600, 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.eval()


def made(method, trained):
    x, _ = blobs(64, 1)
    ensemble = pl.convert(copy.deepcopy(trained), method, example=x, seed=3)
    ensemble.after_step(1.0)  # SWAG looks at the weights as they are
    ensemble.finish([blobs(600, 0)[0]])
    return ensemble.eval()


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.kind())
@pytest.mark.sampled(2)
def test_a_trained_network_becomes_what_the_method_promises(method, trained):
    assert method.on_trained in ON_TRAINED
    x, y = blobs(400, 2)
    ensemble = made(method, trained)
    assert ON_TRAINED[method.on_trained] in str(ensemble.conversion)
    with torch.no_grad():
        alone = trained(x).softmax(1)
    members = ensemble.predict(x).member_probabilities
    if method.on_trained == "kept":
        assert (members - alone).abs().max() < 1e-4
    if method.on_trained == "approximate":
        pooled = ensemble.predict(x)
        agree = (pooled.labels == alone.argmax(1)).float().mean()
        assert agree > 0.95
        nll = -pooled.probabilities[torch.arange(len(y)), y].log().mean()
        assert nll < cross_entropy(alone.log(), y) + 0.05
    found = [one.code for one in doctor(ensemble, (x, y))]
    assert ("untrained" in found) == (method.on_trained == "retrain")


def test_an_untrained_network_is_not_held_against_a_method_that_keeps_it():
    ensemble = pl.convert(network(), methods.LoRAEnsembles(), example=torch.zeros(2, 6))
    assert "untrained" not in [one.code for one in doctor(ensemble, blobs(200, 2))]
