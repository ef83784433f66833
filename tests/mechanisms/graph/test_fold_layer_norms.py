"""Fold layer norms: scale and shift of members become part of the linear layers behind the norm."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.methods import DeepEnsembles, Masksembles, MCDropout, PackedEnsembles
from tests.cases import seeded, set_apart


class Block(nn.Module):
    """Two layers read one norm, as query and key; a second norm has neither bias nor shift behind it."""

    def __init__(self, last=None):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(8), nn.Linear(8, 6), nn.Linear(8, 6, bias=False)
        self.hidden, self.last = nn.LayerNorm(6, bias=False), last or nn.Linear(6, 4, bias=False)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        x = self.norm(x)
        return self.last(self.hidden(self.drop(self.first(x)) * self.second(x)))


def moved(network, method, x, **options):
    """An ensemble in double precision whose members differ in all tensors."""
    return set_apart(pl.convert(network.double(), method, example=x[:2], **options))


def tokens(*shape):
    return torch.randn(5, *shape, dtype=torch.float64, generator=seeded(0))


def norms(frozen):
    """How often a norm runs, and how many of these have a scale other than ones, or a shift."""
    found = [node for node in frozen.module.graph.nodes if "layer_norm" in str(node.target)]
    return len(found), sum(not is_plain(frozen.module, node) for node in found)


def is_plain(module, node):
    scale, shift = (one and getattr(module, one.target) for one in node.args[2:4])
    return bool((scale == 1).all()) and shift is not None and not shift.any()


def test_norms_of_one_size_share_their_ones():
    class Norms(nn.Module):
        """Three norms of one size, each behind a layer."""

        def __init__(self):
            super().__init__()
            blocks = ((nn.Linear(6, 6), nn.LayerNorm(6)) for _ in range(3))
            self.layers = nn.Sequential(*(layer for block in blocks for layer in block), nn.Linear(6, 2))

        def forward(self, x):
            return self.layers(x)

    frozen = moved(Norms(), DeepEnsembles(members=3), tokens(6)).freeze()
    assert norms(frozen) == (3, 0)
    found = [node for node in frozen.module.graph.nodes if "layer_norm" in str(node.target)]
    assert len({node.args[2:4] for node in found}) == 1


@pytest.mark.parametrize("shape", [(8,), (3, 8)])
def test_norms_of_members_run_once_without_scale(shape):
    x = tokens(*shape)
    ensemble = moved(Block(), DeepEnsembles(members=3), x)
    frozen = ensemble.freeze()
    assert norms(frozen) == (2, 0)
    assert "scale and shift of hidden are part of the layers that read it" in frozen.notes
    for batch in (1, 5):
        assert_close(frozen(x[:batch]), ensemble(x[:batch]))


@pytest.mark.parametrize("method", [PackedEnsembles(members=2, alpha=2.0), Masksembles(members=2)])
def test_cut_members_keep_their_numbers(method):
    x = tokens(3, 8)
    ensemble = moved(Block(), method, x)
    frozen = ensemble.freeze()
    assert_close(frozen(x), ensemble(x))


def test_norms_that_members_share_stay_as_they_are():
    x = tokens(8)
    ensemble = moved(Block(), MCDropout(draws=3), x)
    frozen = ensemble.freeze()
    assert norms(frozen) == (2, 2)
    assert_close(frozen(x), ensemble(x))


@pytest.mark.parametrize("last", [nn.ReLU, None])
def test_norms_that_something_else_reads_stay_as_they_are(last):
    class Twice(nn.Module):
        """The layer multiplies its own input."""

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x):
            return self.layer(x) * x

    x = tokens(8)
    ensemble = moved(Block(last() if last else Twice()), DeepEnsembles(members=3), x)
    frozen = ensemble.freeze()
    assert norms(frozen)[1] == 3
    assert not any("of hidden" in note for note in frozen.notes)
    assert_close(frozen(x), ensemble(x))


def test_a_layer_that_members_share_is_not_multiplied():
    x = tokens(8)
    ensemble = moved(Block(), DeepEnsembles(members=3), x, exclude=nn.Linear)
    frozen = ensemble.freeze()
    assert norms(frozen)[1] > 0
    assert_close(frozen(x), ensemble(x))


def test_a_layer_with_a_vector_as_its_weight_keeps_its_norm():
    class Vector(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.weight = nn.Linear(8, 8), nn.LayerNorm(8), nn.Parameter(torch.ones(8))

        def forward(self, x):
            return nn.functional.linear(self.norm(self.first(x)), self.weight).unsqueeze(-1)

    x = tokens(8)
    ensemble = moved(Vector(), DeepEnsembles(members=3), x)
    frozen = ensemble.freeze()
    assert norms(frozen)[1] == 3
    assert_close(frozen(x), ensemble(x))


def test_frozen_files_have_the_folded_weights(tmp_path):
    x = tokens(3, 8)
    ensemble = moved(Block(), DeepEnsembles(members=3), x)
    ensemble.freeze().save(tmp_path / "frozen")
    assert_close(pl.load_frozen(tmp_path / "frozen")(x), ensemble(x))


def test_norms_of_one_size_and_two_precisions_have_ones_of_their_own():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.middle = nn.LayerNorm(8), nn.Linear(8, 8)
            self.second, self.last = nn.LayerNorm(8).double(), nn.Linear(8, 3).double()

        def forward(self, x):
            return self.last(self.second(self.middle(self.first(x)).double())).float()

    x = torch.randn(5, 8, generator=seeded(0))
    ensemble = set_apart(pl.convert(Mixed(), DeepEnsembles(members=3), example=x[:2]))
    frozen = ensemble.freeze()
    assert norms(frozen) == (2, 0)
    assert_close(frozen(x), ensemble(x), rtol=1e-5, atol=1e-5)
