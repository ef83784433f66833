"""Demand rules: the part of an operand that makes a part of a result."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.masks.demand_rules import demand_of
from pluribus.mechanisms.masks.positions import MustBeWhole, Positions
from pluribus.mechanisms.masks.steps import make_step
from pluribus.mechanisms.network.network import Network
from tests.zoo import Apply


def last_step(layer):
    program = read_program(Network(nn.Sequential(nn.Conv2d(2, 6, 1), layer), torch.zeros(3, 2, 4, 4)))
    return make_step(program.steps[-1])


@pytest.mark.parametrize(
    ("layer", "axis"),
    [
        (nn.ReLU(), 1),
        (nn.MaxPool2d(2), 1),
        (Apply(lambda x: x.permute(0, 2, 3, 1)), 3),
        (Apply(lambda x: x.mean((2, 3))), 1),
    ],
    ids=["relu", "pool", "permute", "mean"],
)
def test_operators_ask_for_the_channels_that_are_asked_of_them(layer, axis):
    step, chosen = last_step(layer), torch.arange(6) % 2 == 0
    found = demand_of(step, step.operands[0], Positions(axis, chosen))
    assert found.axis == 1
    assert_close(found.chosen, chosen)


@pytest.mark.parametrize("layer", [nn.Softmax(1), Apply(lambda x: x.cumsum(1))], ids=["softmax", "cumsum"])
def test_an_operator_that_mixes_channels_is_computed_whole(layer):
    step = last_step(layer)
    with pytest.raises(MustBeWhole):
        demand_of(step, step.operands[0], Positions(1, torch.arange(6) % 2 == 0))


def test_broadcast_operands_are_needed_whole():
    step = last_step(Apply(lambda x: x * x.mean((1, 2, 3), keepdim=True)))
    part = Positions(1, torch.arange(6) % 2 == 0)
    assert demand_of(step, step.operands[1], part) is None
    assert demand_of(step, step.operands[0], part).axis == 1


def test_numbers_for_channels_are_cut_with_them():
    step = last_step(nn.BatchNorm2d(6).eval())
    part = Positions(1, torch.arange(6) % 2 == 0)
    found = {one.name: demand_of(step, one, part).axis for one in step.operands if one.name != "eps"}
    assert set(found.values()) == {0, 1}
    assert found["weight"] == 0
