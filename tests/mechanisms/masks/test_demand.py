"""Demand: what a prediction needs of every value, and zeros behind masks."""

import torch
from torch import nn

from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.masks.demand import find_zeros, propagate_demand
from pluribus.mechanisms.masks.positions import Positions
from pluribus.mechanisms.masks.steps import make_step
from pluribus.mechanisms.network.network import Network
from tests.zoo import Apply

EVEN = torch.arange(6) % 2 == 0


def steps_of(*layers):
    program = read_program(Network(nn.Sequential(nn.Conv2d(2, 6, 1), *layers), torch.zeros(3, 2, 4, 4)))
    return {node: make_step(node) for node in program.steps}


def propagate(steps, demand, masks=None, inputs=None, align=1):
    propagate_demand(reversed(steps.values()), demand, masks or {}, inputs or {}, align)
    return [demand.get(node) for node in steps]


def test_demand_is_passed_on_to_the_value_before():
    steps = steps_of(nn.ReLU(), nn.MaxPool2d(2))
    first, last = next(iter(steps)), list(steps)[-1]
    conv, relu, _ = propagate(steps, {last: Positions(1, EVEN)}, inputs={first: None})
    assert relu.chosen.tolist() == conv.chosen.tolist() == EVEN.tolist()


def test_values_that_nothing_needs_have_no_demand():
    steps = steps_of(nn.ReLU(), nn.ReLU())
    demand = {list(steps)[1]: Positions(1, EVEN)}
    propagate(steps, demand)
    assert list(steps)[2] not in demand


def test_operator_that_mixes_channels_needs_all():
    steps = steps_of(nn.ReLU(), nn.Softmax(1))
    last = list(steps)[-1]
    assert propagate(steps, {last: Positions(1, EVEN)}) == [None, None, None]


def test_product_needs_the_channels_that_are_not_zero():
    steps = steps_of(nn.Conv2d(6, 4, 1))
    first, last = steps
    demand = {last: None}
    propagate(steps, demand, inputs={last: Positions(1, EVEN), first: None})
    assert demand[first].chosen.tolist() == EVEN.tolist()


def test_mask_needs_the_channels_that_it_keeps():
    steps = steps_of(Apply(lambda x: x * 2))
    first, last = steps
    demand = {last: Positions(1, torch.arange(6) < 3)}
    propagate(steps, demand, masks={last: Positions(1, EVEN)}, inputs={first: None})
    assert demand[first].chosen.tolist() == [True, False, True, False, False, False]


def test_zeros_pass_operators_that_keep_them():
    steps = steps_of(nn.ReLU(), nn.Flatten())
    first, relu, flat = steps
    zeros = find_zeros(flat, steps, {first: Positions(1, EVEN)})
    assert (zeros.axis, zeros.count) == (1, 3 * 16)
    assert find_zeros(relu, steps, {}) is None


def test_zeros_do_not_pass_other_operators():
    steps = steps_of(nn.Sigmoid())
    first, last = steps
    assert find_zeros(last, steps, {first: Positions(1, EVEN)}) is None
