"""Prior networks: their BatchNorm statistics are those of the first training batch, and stay so."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.members.prior import Sum
from pluribus.mechanisms.members.tree import named_tensors
from pluribus.methods import DeepEnsembles, LayerEnsembles

METHODS = [
    DeepEnsembles(members=3, prior_scale=1.0),
    LayerEnsembles(options=2, prior_scale=1.0, train_draws=2),
]


def network():
    torch.manual_seed(0)
    layers = [
        nn.Linear(4, 8),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(8, 8),
        nn.BatchNorm1d(8),
    ]
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(8, 2)).double()


def prior_outputs(ensemble, x):
    """The prior of every row, which is the row without its own network."""
    rows = [ensemble.member(row) for row in range(len(ensemble.weights))]
    return torch.stack([row.prior(x) for row in rows])


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_priors_vary_as_untrained_networks_do_after_the_first_batch(method):
    x, y = 0.01 * torch.randn(64, 4).double() + 5, torch.arange(64) % 2
    ensemble = pl.convert(network(), method, example=x)
    before = prior_outputs(ensemble, x).std(1).mean()
    ensemble.train().loss(x, y)
    after = prior_outputs(ensemble, x)
    assert after.std(1).mean() > 5 * before
    ensemble.loss(x + 1, y)
    assert_close(prior_outputs(ensemble, x), after, rtol=0, atol=0)


def test_the_statistics_of_a_prior_are_those_of_the_batch():
    x = 3 * torch.randn(64, 4).double()
    ensemble = pl.convert(network(), DeepEnsembles(members=3, prior_scale=1.0), example=x).train()
    ensemble(x)
    own = named_tensors(ensemble.members.prior.tensors.own)
    for row in range(3):
        hidden = x @ own["0.weight"][row].T + own["0.bias"][row]
        assert_close(own["1.running_mean"][row], hidden.mean(0))
        assert_close(own["1.running_var"][row], hidden.var(0))


def test_priors_are_left_alone_in_eval_mode_by_one_sample_and_by_setting():
    x, y = torch.randn(8, 4).double(), torch.arange(8) % 2
    ensemble = pl.convert(network(), METHODS[0], example=x)
    ensemble.eval().loss(x, y)
    assert not named_tensors(ensemble.members.prior.tensors.own)["1.num_batches_tracked"].any()
    never = pl.convert(network(), DeepEnsembles(members=2, prior_scale=1.0, settle_prior=False), example=x)
    never.train().loss(x, y)
    assert not named_tensors(never.members.prior.tensors.own)["1.num_batches_tracked"].any()


def test_settled_priors_survive_a_file(tmp_path):
    x, y = torch.randn(8, 4).double(), torch.arange(8) % 2
    ensemble = pl.convert(network(), METHODS[1], example=x).train()
    ensemble.loss(x, y)
    ensemble.save(tmp_path / "saved")
    loaded = pl.load(tmp_path / "saved", network(), example=x)
    assert_close(loaded(x), ensemble.eval()(x))
    loaded.train().loss(x + 1, y)
    assert_close(prior_outputs(loaded, x), prior_outputs(ensemble, x))


def test_a_member_adds_its_prior_without_a_gradient():
    network, prior, x = nn.Linear(3, 2), nn.Linear(3, 2), torch.randn(5, 3)
    member = Sum(network, prior, scale=0.5)
    assert_close(member(x), network(x) + 0.5 * prior(x))
    member(x).sum().backward()
    assert network.weight.grad is not None
    assert prior.weight.grad is None


def test_a_prior_sees_the_inputs_that_the_network_was_given():
    class Writing(nn.Module):
        def forward(self, x):
            return x.mul_(2)

    x = torch.ones(2, 3)
    assert_close(Sum(Writing(), nn.Identity(), scale=1.0)(x), torch.full((2, 3), 3.0))


def test_priors_stay_in_eval_mode():
    ensemble = pl.convert(nn.Linear(3, 2), DeepEnsembles(members=2, prior_scale=1.0)).train()
    assert ensemble.members.learnt.training
    assert not ensemble.members.prior.training
