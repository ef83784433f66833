"""Code with kept dropout: a row is a seed, and without one torch draws."""

import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.dropout.code import InContext
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.methods import MCDropout

x = torch.randn(5, 3)


def made():
    network = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    return pl.convert(network, MCDropout(draws=2), example=x).eval()


def test_a_member_keeps_its_draw():
    ensemble = made()
    member = ensemble.member(1)
    assert isinstance(member, InContext)
    assert_close(member(x), ensemble(x)[1])
    assert not torch.allclose(member.network(x), ensemble(x)[1])  # without its masks it drops nothing


def test_a_row_without_a_seed_draws_in_train_mode():
    members = made().train().members
    call, modes = members.code.call, members.code.caller.modes
    tensors = members.tensors.of_one(None)
    first, second = (call(tensors, None, Inputs.of(x), modes) for _ in range(2))
    assert not torch.equal(first, second)


def test_lowered_rows_differ_by_their_masks_alone():
    members = made().members
    lowered = members.code.lowered(members.tensors, made().member(0).network, Inputs.of(x))
    assert lowered.keys(5) == {"mask_0": 5}
    assert set(next(lowered.of([5]))) == {f"network.{name}" for name in members.tensors.parts()[0]} | {
        "mask_0"
    }
