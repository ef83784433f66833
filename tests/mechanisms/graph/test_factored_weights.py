"""Factored weights: rank-one products as scaled inputs and outputs of one weight."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.graph import factored_weights
from pluribus.methods import BatchEnsemble, DeepEnsembles, LoRAEnsembles
from tests.cases import seeded, set_apart

# Every weight is written by factors, however small.
ALL = 0


@pytest.fixture
def every_weight(monkeypatch):
    monkeypatch.setattr(factored_weights, "IN_CACHE", ALL)
    monkeypatch.setattr(factored_weights, "OUTWEIGHS", ALL)


def moved(network, method, x):
    """An ensemble in double precision whose members differ in all tensors."""
    ensemble = pl.convert(network.double(), method, example=x[:2])
    ensemble.train()(x)
    return set_apart(ensemble)


def images(*shape):
    return torch.randn(6, *shape, dtype=torch.float64, generator=seeded(0))


def products(frozen):
    """The number of tensors of three or more members among the weights, and the count of layers."""
    targets = [
        str(node.target).split(".")[1] for node in frozen.module.graph.nodes if node.op == "call_function"
    ]
    return sum(name in ("conv1d", "conv2d", "conv3d", "linear", "bmm", "baddbmm") for name in targets)


class Residual(nn.Module):
    """Two convolutions with a norm, a shortcut, and a layer on the last axis."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding="same", groups=2, bias=False)
        self.last = nn.Linear(8, 5)

    def forward(self, x):
        x = self.norm(self.first(x)).relu()
        x = x + self.second(x)
        return self.last(x.mean((2, 3)))


NETWORKS = {
    "norm, groups, shortcut": (Residual, (3, 7, 5)),
    "one axis": (
        lambda: nn.Sequential(nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6), nn.Flatten(), nn.Linear(24, 3)),
        (4, 6),
    ),
    "three axes": (
        lambda: nn.Sequential(nn.Conv3d(2, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2)),
        (2, 3, 3, 3),
    ),
    "tokens": (lambda: nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 2, bias=False)), (5, 4)),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.usefixtures("every_weight")
def test_graphs_with_factors_compute_what_members_compute(name):
    build, shape = NETWORKS[name]
    x = images(*shape)
    ensemble = moved(build(), BatchEnsemble(members=3), x)
    frozen = ensemble.freeze()
    layers = sum(
        isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)) for layer in build().modules()
    )
    assert sum("one weight for all members" in note for note in frozen.notes) == layers
    for batch in (1, 2, 6):
        assert_close(frozen(x[:batch]), ensemble(x[:batch]))


@pytest.mark.usefixtures("every_weight")
def test_a_layer_runs_once_for_all_members():
    x = images(3, 7, 5)
    ensemble = moved(Residual(), BatchEnsemble(members=3), x)
    assert products(ensemble.freeze()) == 3


@pytest.mark.usefixtures("every_weight")
def test_files_hold_one_weight(tmp_path):
    x = images(4, 6)
    network = nn.Sequential(nn.Conv1d(4, 300, 3), nn.ReLU(), nn.Conv1d(300, 2, 4))
    ensemble = moved(network, BatchEnsemble(members=4), x)
    frozen = ensemble.freeze()
    one = sum(parameter.nbytes for parameter in network.parameters())
    assert pl.cost(frozen, x[:1]).weight_bytes < 3 * one
    frozen.save(tmp_path / "frozen")
    assert_close(pl.load_frozen(tmp_path / "frozen")(x), ensemble(x))


def test_weights_stay_apart_where_samples_are_larger_or_they_fit_the_cache():
    small, wide = nn.Linear(16, 16), nn.Conv2d(3, 64, 3, padding=1)
    large = nn.Sequential(nn.Flatten(), nn.Linear(256, 600))
    for network, shape, expected in ((small, (16,), 0), (wide, (3, 40, 40), 0), (large, (4, 8, 8), 1)):
        x = images(*shape)
        notes = moved(network, BatchEnsemble(members=2), x).freeze().notes
        assert sum("one weight for all members" in note for note in notes) == expected


@pytest.mark.usefixtures("every_weight")
@pytest.mark.parametrize("method", [LoRAEnsembles(members=2), DeepEnsembles(members=2)])
def test_other_weights_are_no_scalings(method):
    x = images(4)
    ensemble = moved(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), method, x)
    frozen = ensemble.freeze()
    assert not any("one weight for all members" in note for note in frozen.notes)
    assert_close(frozen(x), ensemble(x))


@pytest.mark.usefixtures("every_weight")
def test_tied_weights_are_scaled_in_every_layer():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(5, 5), nn.Linear(5, 5)
            self.last.weight = self.first.weight

        def forward(self, x):
            return self.last(self.first(x).relu())

    x = images(5)
    ensemble = moved(Tied(), BatchEnsemble(members=3), x)
    assert_close(ensemble.freeze()(x), ensemble(x))


def test_explain_counts_the_layers_and_not_the_scalings():
    network = nn.Sequential(nn.Linear(600, 300), nn.ReLU(), nn.Linear(300, 3))
    x = images(600)
    frozen = moved(network, BatchEnsemble(members=3), x).freeze()
    assert "0 has one weight for all members, and scales inputs and outputs" in frozen.notes
    assert frozen.explain(x[:1]).layer_calls.alone == 6
