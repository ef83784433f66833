"""Priors: a fixed network is added to every member."""

import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.members.prior import Sum
from pluribus.methods import DeepEnsembles


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
