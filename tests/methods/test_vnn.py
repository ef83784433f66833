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


def parts_of(layer, x, noise):
    mean = nn.functional.linear(x, layer.weight, layer.bias)
    deviation = nn.functional.linear(x, layer.drawn_deviation.weight, layer.drawn_deviation.bias)
    return mean, deviation, noise


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        ("mean", lambda m, s, e: m.relu() + e * s),
        ("std", lambda m, s, e: m + e * s.relu()),
        ("mean+std", lambda m, s, e: m.relu() + e * s.relu()),
        ("mean+end", lambda m, s, e: (m.relu() + e * s).relu()),
        ("std+end", lambda m, s, e: (m + e * s.relu()).relu()),
        ("mean+std+end", lambda m, s, e: (m.relu() + e * s.relu()).relu()),
        ("none", lambda m, s, e: m + e * s),
    ],
)
def test_an_activation_acts_on_the_parts_of_eq_3(activation, expected):
    torch.manual_seed(0)
    small = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)).double()
    ensemble = pl.convert(small, VNN(draws=2, deviation=1.0, activation=activation), example=X).eval()
    row = ensemble.members.index.rows(training=False)[1]
    noise = ensemble.members.tensors.draw(row)
    member = ensemble.member(1)
    hidden = expected(*parts_of(member[0], X, noise["0.drawn_noise"]))
    mean, deviation, number = parts_of(member[2], hidden, noise["2.drawn_noise"])
    assert_close(ensemble(X)[1], mean + number * deviation)
    became = {layer.names[0]: layer.became for layer in ensemble.conversion}
    assert f"activation: {activation}" in became["0"]
    assert "activation" not in became["2"]


def test_a_norm_on_mean_and_deviation_has_weights_and_statistics_for_each():
    torch.manual_seed(0)
    small = nn.Sequential(nn.Conv1d(2, 4, 1), nn.BatchNorm1d(4), nn.Tanh()).double()
    method = VNN(draws=2, deviation=1.0, norm="mean+std", activation="mean")
    x = X.view(6, 2, 4)
    ensemble = pl.convert(small, method, example=x)
    ensemble.train()(x)
    layer, norm = ensemble.member(0)[0], ensemble.member(0)[1]
    assert norm.num_batches_tracked == norm.drawn_std.num_batches_tracked == 1
    mean = nn.functional.conv1d(x, layer.weight, layer.bias)
    deviation = nn.functional.conv1d(x, layer.drawn_deviation.weight, layer.drawn_deviation.bias)
    assert_close(norm.running_mean, 0.1 * mean.mean((0, 2)))
    assert_close(norm.drawn_std.running_mean, 0.1 * deviation.mean((0, 2)))
    noise = ensemble.members.tensors.draw(ensemble.members.index.rows(training=False)[0])["0.drawn_noise"]
    expected = norm.forward(mean).tanh() + noise[:, None] * norm.drawn_std(deviation)
    # The hooks of the norm act on drawn outputs alone.
    assert_close(ensemble.eval()(x)[0], expected)


def test_numbers_for_each_sample_are_for_training_alone():
    same = X[:1].expand(5, 4)
    ensemble = pl.convert(network(), VNN(draws=2, deviation=1.0, per_sample=True), example=X)
    assert ensemble.train()(same).std(1).min() > 0
    assert_close(ensemble.eval()(same).std(1), torch.zeros(2, 3, dtype=torch.float64))


def test_both_forms_draw_the_same_members():
    merged, drawn = (
        pl.convert(network(), VNN(draws=2, deviation=0.5, per_sample=one), example=X) for one in (False, True)
    )
    assert_close(merged.eval()(X), drawn.eval()(X))


def test_a_layer_with_a_parametrisation_cannot_draw_its_outputs():
    small = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)))
    with pytest.raises(pl.ConversionError, match="parametrisation"):
        pl.convert(small, VNN(activation="mean"), example=torch.zeros(2, 4))


FORMS = [
    VNN(draws=4),
    VNN(draws=4, activation="mean", norm="mean"),
    VNN(draws=4, per_sample=True, global_std="replace"),
]


@pytest.mark.parametrize("method", FORMS, ids=["weights", "outputs", "fixed"])
def test_every_form_agrees(method, tmp_path):
    verify_forms(perturbed(pl.convert(network(), method, example=X)), network, X, tmp_path)


def test_a_network_without_linear_layers_is_refused():
    with pytest.raises(pl.ConversionError, match="linear layer or convolution"):
        pl.convert(nn.Sequential(nn.LayerNorm(4)), VNN(), example=torch.zeros(2, 4))
