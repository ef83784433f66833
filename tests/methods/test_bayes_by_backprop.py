"""Bayes by Backprop: draws, divergences, local outputs, and members that train."""

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal, kl_divergence
from torch.testing import assert_close

import pluribus as pl
from pluribus.methods import BayesByBackprop
from pluribus.methods.bayes_by_backprop import gaussian_divergence, mixture_divergence
from tests.perturb import perturbed
from tests.verify import verify_forms

X = torch.randn(12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 3


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).double()


def test_gaussian_divergence_is_that_of_torch():
    mean, deviation = torch.randn(5), torch.rand(5) + 0.1
    expected = kl_divergence(Normal(mean, deviation), Normal(0.0, 0.7)).sum()
    assert_close(gaussian_divergence(mean, deviation, 0.7), expected)


def test_mixture_divergence_is_a_draw_of_the_difference_of_densities():
    mean, deviation, weights = torch.randn(5), torch.rand(5) + 0.1, torch.randn(5)
    scales = torch.tensor([1.5, 0.05])
    prior = MixtureSameFamily(Categorical(torch.tensor([0.3, 0.7])), Normal(torch.zeros(2), scales))
    expected = Independent(Normal(mean, deviation), 1).log_prob(weights) - prior.log_prob(weights).sum()
    assert_close(mixture_divergence(mean, deviation, weights, 0.3, 1.5, 0.05), expected)


def test_weights_are_drawn_around_the_network():
    ensemble = pl.convert(network(), BayesByBackprop(draws=2000, deviation=0.2), example=X)
    tensors = ensemble.members.tensors
    drawn = torch.stack([one["0.weight"] for one in tensors.of(ensemble.members.index.rows(training=False))])
    mean = network()[0].weight.detach()
    scale = 0.2 * mean.square().mean().sqrt()
    assert (drawn.mean(0) - mean).abs().max() < 0.15 * scale
    assert_close(drawn.std(0), scale.expand_as(mean), rtol=0.1, atol=0.0)


def test_the_penalty_is_the_divergence_over_the_size_of_the_data():
    ensemble = pl.convert(network(), BayesByBackprop(prior_deviation=0.5, anneal=0.5), example=X).train()
    gaussians = ensemble.members.tensors.gaussians().values()
    total = sum(gaussian_divergence(mean, deviation, 0.5) for mean, deviation in gaussians)
    for progress, weight in ((0.0, 0.0), (0.25, 0.5), (0.5, 1.0), (1.0, 1.0)):
        found = ensemble.method.penalty(ensemble.members, 4, 200, progress)
        assert_close(torch.as_tensor(found), weight * total / 200)


@pytest.mark.parametrize(
    "method", [BayesByBackprop(), BayesByBackprop(local=False), BayesByBackprop(mixture=0.5)]
)
def test_training_learns_means_and_deviations(method):
    torch.manual_seed(0)
    ensemble = pl.convert(network(), method, example=X).train()
    ensemble.loss(X, Y, dataset_size=100).backward()
    assert all(parameter.grad is not None for parameter in ensemble.parameters())
    optimizer = torch.optim.Adam(ensemble.parameters(), lr=0.02)
    losses = []
    for _ in range(150):
        optimizer.zero_grad()
        loss = ensemble.loss(X, Y, dataset_size=10_000)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-20:]) < 0.8 * sum(losses[:20])


def test_training_draws_outputs_where_it_can():
    assert pl.convert(network(), BayesByBackprop(), example=X).members.tensors.local
    recurrent = pl.convert(nn.LSTM(4, 3), BayesByBackprop(), example=X[:, None].float(), output=0)
    assert not recurrent.members.tensors.local
    assert any("draws weights" in note for note in recurrent.conversion.notes)


def test_every_form_agrees(tmp_path):
    verify_forms(perturbed(pl.convert(network(), BayesByBackprop(draws=4), example=X)), network, X, tmp_path)


def test_norms_alone_are_refused():
    with pytest.raises(pl.ConversionError, match="besides norms"):
        pl.convert(nn.Sequential(nn.LayerNorm(4)), BayesByBackprop(), example=torch.zeros(2, 4))
