"""Hypermodel: weights are linear in the index, and a fixed random network of the same index is added."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.members.drawn import normal_numbers
from pluribus.methods import Hypermodel
from pluribus.methods.hypermodel import combine_directions, random_features, split_index
from tests.perturb import perturbed
from tests.verify import verify_forms

X = torch.randn(12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 3


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double()


def test_weights_are_a_sum_over_the_index():
    start, directions, index = torch.randn(3, 4), torch.randn(2, 3, 4), torch.randn(2)
    expected = start + index[0] * directions[0] + index[1] * directions[1]
    assert_close(combine_directions(start, directions, index), expected)


def test_one_index_makes_all_weights_of_a_member():
    ensemble = pl.convert(network(), Hypermodel(draws=50, dimension=1), example=X)
    tensors = ensemble.members.tensors
    means, directions = tensors.parts()[0], dict(tensors.directions.named_parameters())
    found = []
    for one in tensors.of(ensemble.members.index.rows(training=False)):
        ratios = [(one[name] - means[name]) / directions[name][0] for name in directions]
        flat = torch.cat([ratio.flatten() for ratio in ratios])
        assert_close(flat, flat[:1].expand_as(flat))
        found.append(flat[0])
    assert 0.6 < torch.stack(found).std() < 1.4


def test_the_last_layer_alone_can_vary():
    ensemble = pl.convert(network(), Hypermodel(layers="last"), example=X)
    assert ensemble.members.tensors.names == ("2.weight", "2.bias")


def test_a_prior_is_fixed_and_knows_nothing_of_the_network():
    ensemble = pl.convert(network(), Hypermodel(draws=3, prior_scale=2.0, prior="networks"), example=X)
    prior = ensemble.members.prior
    assert not any(parameter.requires_grad for parameter in prior.parameters())
    row = ensemble.members.index.rows(training=False)[0]
    assert_close(
        prior.tensors.of_one(row)["0.weight"].mean(), torch.zeros((), dtype=torch.float64), rtol=0, atol=0.3
    )
    without = ensemble.members.learnt.tensors.of_one(row)
    ensemble.eval()
    learnt = torch.func.functional_call(network(), without, X)
    fixed = torch.func.functional_call(network(), prior.tensors.of_one(row), X)
    assert_close(ensemble(X)[0], learnt + 2.0 * fixed)


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_training_learns_start_and_directions(scale):
    ensemble = pl.convert(network(), Hypermodel(prior_scale=scale), example=X).train()
    ensemble.loss(X, Y).backward()
    assert all(p.grad is not None for p in ensemble.parameters() if p.requires_grad)


@pytest.mark.parametrize(
    "method",
    [
        Hypermodel(draws=4),
        Hypermodel(draws=4, prior_scale=1.0, prior="networks"),
        Hypermodel(draws=4, prior_scale=5.0, prior="random_features"),
    ],
    ids=["plain", "networks", "random features"],
)
def test_every_form_agrees(method, tmp_path):
    verify_forms(perturbed(pl.convert(network(), method, example=X)), network, X, tmp_path)


def test_the_prior_is_that_of_the_authors_unless_a_file_says_otherwise():
    assert Hypermodel().prior == "random_features"
    kept = pl.Method.from_dict(Hypermodel(prior_scale=1.0, prior="networks").to_dict())
    assert kept.prior == "networks"
    # Files of before there was a choice.
    old = Hypermodel(prior_scale=1.0).to_dict()
    old = {name: value for name, value in old.items() if name != "prior"} | {"version": 1}
    assert pl.Method.from_dict(old).prior == "networks"


def test_several_draws_are_each_alone():
    ensemble = pl.convert(network(), Hypermodel(draws=3), example=X)
    tensors, rows = ensemble.members.tensors, ensemble.members.index.rows(training=False)
    for name, values in tensors.draw_all(rows).items():
        assert_close(values, torch.stack([tensors.draw(row)[name] for row in rows]))


def test_random_features_have_length_1_and_only_their_places():
    found = random_features((3, 4), [1, 2], 5, torch.Generator().manual_seed(0))
    assert found.shape == (5, 3, 4)
    assert not found[[0, 3, 4]].any()
    assert_close(found.square().sum(0), torch.full((3, 4), 1 / 4))
    bias = random_features((3,), [0], 5, torch.Generator().manual_seed(0))
    assert_close(bias.abs().sum(0), torch.ones(3))


def test_layers_share_a_short_index_and_split_a_long_one():
    assert split_index(2, 3) == [[0, 1]] * 3
    assert split_index(7, 3) == [[0, 1, 2], [3, 4], [5, 6]]


def test_the_authors_prior_is_a_network_whose_layers_have_parts_of_the_index():
    method = Hypermodel(draws=3, dimension=5, prior_scale=5.0, prior="random_features")
    ensemble = pl.convert(network(), method, example=X).eval()
    prior = ensemble.members.prior.tensors
    assert not any(parameter.requires_grad for parameter in prior.parameters())
    row = ensemble.members.index.rows(training=False)[1]
    index = normal_numbers([5], row, 0, X) / 5**0.5
    every, x = dict(prior.directions.named_parameters()), X
    for layer, places in (("0", [0, 1, 2]), ("2", [3, 4])):
        weight, bias = (
            torch.tensordot(index[places], every[f"{layer}.{one}"][places], 1) for one in ("weight", "bias")
        )
        x = nn.functional.linear(x.relu() if layer == "2" else x, weight, bias)
    learnt = torch.func.functional_call(network(), ensemble.members.learnt.tensors.of_one(row), X)
    assert_close(ensemble(X)[1], learnt + 5.0 * x)
