"""VNN: outputs are a mean and a deviation times one number for each unit."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.methods import VNN
from pluribus.methods.vnn import draw_units
from tests.perturb import perturbed
from tests.verify import verify_forms

X = torch.randn(12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 3


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 3)).double()


def test_drawn_weights_give_mean_and_deviation_of_eq_1():
    x, noise = torch.randn(5, 4), torch.randn(3)
    mean, deviation, bias, of_bias = torch.randn(3, 4), torch.randn(3, 4), torch.randn(3), torch.randn(3)
    found = nn.functional.linear(x, draw_units(mean, deviation, noise), draw_units(bias, of_bias, noise))
    assert_close(found, x @ mean.T + bias + noise * (x @ deviation.T + of_bias))


def test_a_unit_has_one_number_for_its_weight_and_bias():
    ensemble = pl.convert(network(), VNN(draws=3, deviation=0.5), example=X)
    tensors = ensemble.members.tensors
    means, deviations = tensors.parts()[0], dict(tensors.deviations.named_parameters())
    drawn = tensors.of_one(ensemble.members.index.rows(training=False)[0])
    of_weight = (drawn["0.weight"] - means["0.weight"]) / deviations["0.weight"]
    of_bias = (drawn["0.bias"] - means["0.bias"]) / deviations["0.bias"]
    assert_close(of_weight, of_bias[:, None].expand(-1, 4))


def test_the_factor_multiplies_deviations():
    plain, doubled = (
        pl.convert(network(), VNN(draws=2, global_std=mode), example=X).eval()
        for mode in ("none", "multiply")
    )
    row = plain.members.index.rows(training=False)[0]
    mean = network()[0].weight.detach()
    one, two = (ensemble.members.tensors.of_one(row)["0.weight"] - mean for ensemble in (plain, doubled))
    assert_close(two, 2 * one)


def test_a_replaced_deviation_is_the_factor():
    ensemble = pl.convert(network(), VNN(draws=2, global_std="replace", factor=0.5), example=X).eval()
    drawn = ensemble.members.tensors.of_one(ensemble.members.index.rows(training=False)[0])
    assert torch.equal(drawn["0.weight"], network()[0].weight)
    assert not any(one.requires_grad for one in ensemble.members.tensors.deviations.parameters())


def test_training_learns_means_and_deviations():
    ensemble = pl.convert(network(), VNN(), example=X).train()
    ensemble.loss(X, Y).backward()
    assert all(parameter.grad is not None for parameter in ensemble.parameters())


def test_every_form_agrees(tmp_path):
    verify_forms(perturbed(pl.convert(network(), VNN(draws=4), example=X)), network, X, tmp_path)


def test_a_network_without_linear_layers_is_refused():
    with pytest.raises(pl.ConversionError, match="linear layer or convolution"):
        pl.convert(nn.Sequential(nn.LayerNorm(4)), VNN(), example=torch.zeros(2, 4))
