"""Member: a row alone is its network, with what surrounds it and its prior."""

import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.running.member import Member, Select
from pluribus.methods import DeepEnsembles, MCDropout


def test_a_member_adds_its_prior_without_a_gradient():
    network, prior, x = nn.Linear(3, 2), nn.Linear(3, 2), torch.randn(5, 3)
    member = Member(network, None, prior, prior_scale=0.5)
    assert_close(member(x), network(x) + 0.5 * prior(x))
    member(x).sum().backward()
    assert network.weight.grad is not None
    assert prior.weight.grad is None


def test_a_prior_sees_the_inputs_that_the_network_was_given():
    class Writing(nn.Module):
        def forward(self, x):
            return x.mul_(2)

    x = torch.ones(2, 3)
    assert_close(Member(Writing(), None, nn.Identity(), prior_scale=1.0)(x), torch.full((2, 3), 3.0))


def test_a_member_keeps_its_draw():
    network = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    ensemble, x = pl.convert(network, MCDropout(draws=2)).eval(), torch.randn(5, 3)
    member = ensemble.member(1)
    assert isinstance(member, Member)
    assert_close(member(x), ensemble(x)[1])
    assert not torch.allclose(member.network(x), ensemble(x)[1])  # without its surroundings it drops nothing


def test_a_row_that_is_a_network_is_one_of_the_user_s_class():
    assert type(pl.convert(nn.Linear(3, 2), DeepEnsembles(members=2)).member(0)) is nn.Linear


def test_only_the_prediction_is_returned():
    hidden, logits = torch.zeros(2), torch.ones(2)
    assert Select("logits")(nn.Identity(), (), {"hidden": hidden, "logits": logits}) is logits
