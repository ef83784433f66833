"""Liveness: positions along an axis, their union, their rounding, and what a reshape does to them."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.graph.export import Operation
from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.masks.demand import Some, Whole, both, make_step, merged_axis, needed, rounded
from pluribus.mechanisms.network.network import Network
from tests.zoo import Apply


def test_widths_are_rounded_up():
    kept = Some(1, torch.arange(64) < 33)
    assert rounded(kept, 8).count == 40
    assert rounded(kept, 1).count == 33
    assert rounded(Some(1, torch.arange(64) < 31), 8).count == 31
    assert rounded(Some(1, torch.arange(35) < 34), 8).count == 35
    assert rounded(None, 8) is None


def test_positions_along_different_axes_make_the_whole():
    one, other = Some(1, torch.tensor([True, False])), Some(2, torch.tensor([True, False]))
    assert both(one, other) is None
    assert both(one, Some(1, torch.tensor([False, True]))).count == 2


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


def last_step(layer):
    program = read_program(Network(nn.Sequential(nn.Conv2d(2, 6, 1), layer), torch.zeros(3, 2, 4, 4)))
    node = program.steps[-1]
    return make_step(Operation(node, str(node.target).removeprefix("aten.").split(".")[0], "", ""))


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
    (name, position, operand) = step.operands[0]
    asked = needed(step, name, position, operand, Some(axis, chosen))
    assert asked.axis == 1
    assert_close(asked.chosen, chosen)


@pytest.mark.parametrize("layer", [nn.Softmax(1), Apply(lambda x: x.cumsum(1))], ids=["softmax", "cumsum"])
def test_an_operator_that_mixes_channels_is_computed_whole(layer):
    step = last_step(layer)
    with pytest.raises(Whole):
        needed(step, *step.operands[0], Some(1, torch.arange(6) % 2 == 0))
