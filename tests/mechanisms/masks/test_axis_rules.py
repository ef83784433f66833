"""Axis rules: channels are followed through operators that move or merge axes."""

import pytest
import torch
from torch import nn

from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.masks.axis_rules import merged_axis
from pluribus.mechanisms.masks.demand_rules import demand_of
from pluribus.mechanisms.masks.positions import MustBeWhole, Positions
from pluribus.mechanisms.masks.steps import make_step
from pluribus.mechanisms.network.network import Network
from tests.zoo import Apply


@pytest.mark.parametrize(
    ("before", "after", "axis", "expected"),
    [
        ((2, 12, 3, 3), (2, 108), 1, (1, 9)),
        ((2, 12, 3, 3), (2, 12, 9), 1, (1, 1)),
        ((2, 12, 1, 1), (2, 12), 1, (1, 1)),
        ((2, 1, 12), (2, 12), 1, (2, 1)),
    ],
)
def test_reshapes_carry_channels_with_what_follows_them(before, after, axis, expected):
    assert merged_axis(before, after, axis) == expected


def test_reshapes_that_mix_channels_are_computed_whole():
    with pytest.raises(MustBeWhole):
        merged_axis((2, 6, 4), (2, 4, 6), 1)


def demand(function, axis, chosen):
    model = nn.Sequential(nn.Conv2d(2, 6, 1), Apply(function))
    step = make_step(read_program(Network(model, torch.zeros(3, 2, 4, 4))).steps[-1])
    return demand_of(step, step.operands[0], Positions(axis, chosen))


EVEN = torch.arange(6) % 2 == 0


@pytest.mark.parametrize(
    ("function", "axis"),
    [
        (lambda x: x.permute(0, 2, 3, 1), 3),
        (lambda x: x.transpose(1, 3), 3),
        (lambda x: x.mean((2, 3)), 1),
        (lambda x: x.sum(0), 0),
        (lambda x: x.amax(3, keepdim=True), 1),
        (lambda x: x.flatten(2), 1),
        (lambda x: x[:, :, 0], 1),
        (lambda x: x.select(0, 1), 0),
        (lambda x: nn.functional.pad(x, (1, 1)), 1),
    ],
    ids=["permute", "transpose", "mean", "sum", "amax", "flatten", "slice", "select", "pad"],
)
def test_channels_are_followed_to_the_axis_they_came_from(function, axis):
    found = demand(function, axis, EVEN)
    assert (found.axis, found.chosen.tolist()) == (1, EVEN.tolist())


def test_merged_channels_need_all_that_any_entry_needs():
    entries = torch.arange(96) == 17
    found = demand(lambda x: x.flatten(1), 1, entries)
    assert (found.axis, found.chosen.nonzero().flatten().tolist()) == (1, [1])


def test_joined_values_need_their_own_stretch():
    found = demand(lambda x: torch.cat([x, 2 * x], 1), 1, torch.arange(12) < 2)
    assert found.chosen.tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.mean((1, 2, 3))[:, None].sum(),
        lambda x: x[:, :4],
        lambda x: nn.functional.pad(x, (0, 0, 0, 0, 1, 1)),
    ],
    ids=["sum of all", "slice of channels", "padded channels"],
)
def test_operators_without_parts_are_computed_whole(function):
    with pytest.raises(MustBeWhole):
        demand(function, 1, EVEN)
