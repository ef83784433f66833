"""DropConnect: single weights are dropped with the right probability, and biases never."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import ConversionError, SettingError
from pluribus.methods import DropConnect
from tests import zoo
from tests.cases import seeded

X = torch.randn(7, 6, dtype=torch.float64, generator=seeded(0))


def test_each_weight_is_dropped_by_itself_and_the_others_are_scaled():
    model = nn.Linear(6, 5).double()
    ensemble = pl.convert(model, DropConnect(rate=0.3, draws=4000)).eval()
    rows = list(ensemble.members.tensors.of(ensemble.members.index.rows(training=False)))
    weights = torch.stack([row["weight"] for row in rows])
    kept = weights != 0
    assert_close(weights, kept * model.weight / 0.7)
    assert_close(kept.double().mean(0), torch.full((5, 6), 0.7).double(), atol=0.03, rtol=0)
    both = (kept[:, 0, 0] & kept[:, 0, 1]).double().mean().item()
    assert both == pytest.approx(0.49, abs=0.03)
    assert all(row["bias"] is rows[0]["bias"] for row in rows)


def test_rows_are_kept_and_training_draws_afresh():
    ensemble = pl.convert(zoo.mlp().double(), DropConnect(rate=0.3, draws=4, train_draws=2))
    assert_close(ensemble.eval()(X), ensemble(X), rtol=0, atol=0)
    assert_close(ensemble(X, members=[2, 0]), ensemble(X)[[2, 0]], rtol=0, atol=0)
    assert not torch.equal(ensemble.train()(X), ensemble(X))
    assert len(ensemble(X)) == 2


def test_rates_may_differ_and_norms_and_parametrised_weights_are_left():
    ensemble = pl.convert(
        zoo.batch_norm_mlp().double(), DropConnect(rate=0.9), overrides={"3": {"rate": 0.0}}
    ).eval()
    assert ensemble.conversion["0"].became == "weights dropped with probability 0.9"
    assert ensemble.conversion["1"].reason == "no weights to drop"
    rows = list(ensemble.members.tensors.of(ensemble.members.index.rows(training=False)))
    assert all((row["3.weight"] != 0).all() for row in rows)
    for norm in (nn.utils.parametrizations.weight_norm, nn.utils.spectral_norm):
        normed = nn.Sequential(norm(nn.Linear(6, 4)), nn.Linear(4, 3))
        assert pl.convert(normed, DropConnect()).conversion["0"].reason == "no weights to drop"


def test_biases_of_several_axes_are_kept():
    attention = nn.MultiheadAttention(4, 1, add_bias_kv=True)
    tokens = torch.zeros(2, 3, 4)
    ensemble = pl.convert(attention, DropConnect(), example=(tokens, tokens, tokens), output=0)
    assert dict(ensemble.members.tensors.own.named_parameters()).keys() == {
        "in_proj_weight",
        "out_proj.weight",
    }


def test_tied_weights_with_different_rates_are_refused():
    with pytest.raises(ConversionError, match=r"layers that hold 0\.weight must have the same rate"):
        pl.convert(zoo.tied_embedding(), DropConnect(), overrides={"4": {"rate": 0.5}})


def test_a_network_without_weights_is_refused():
    with pytest.raises(ConversionError, match="must have a weight of at least two axes"):
        pl.convert(nn.Sequential(nn.BatchNorm1d(6)), DropConnect())


@pytest.mark.parametrize("rate", [1.0, -0.1, "half"])
def test_an_impossible_rate_is_refused(rate):
    with pytest.raises(SettingError, match="rate must be "):
        DropConnect(rate=rate)
