"""Steps: operands by name, and the kinds of operators."""

import pytest
import torch
from torch import nn

from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.masks.steps import make_step, shape_of
from pluribus.mechanisms.network.network import Network
from tests.zoo import Apply


def last_step(model, *shape):
    return make_step(read_program(Network(model.eval(), torch.zeros(3, *shape))).steps[-1])


def test_operands_have_the_names_of_their_arguments():
    step = last_step(nn.Linear(4, 2), 4)
    assert [(one.name, one.position) for one in step.operands] == [("input", 0), ("weight", 0), ("bias", 0)]
    assert step.source is step.operands[0].node
    assert shape_of(step.node) == (3, 2)


def test_operands_in_a_list_have_their_position():
    step = last_step(nn.Sequential(nn.Linear(4, 2), Apply(lambda x: torch.cat([x, x]))), 4)
    assert [one.position for one in step.operands] == [0, 1]


@pytest.mark.parametrize(
    ("layer", "shape", "product", "depthwise"),
    [
        (nn.Linear(4, 2), (4,), True, False),
        (nn.Conv2d(4, 2, 1), (4, 3, 3), True, False),
        (nn.ConvTranspose2d(4, 2, 1), (4, 3, 3), True, False),
        (nn.Conv2d(4, 4, 1, groups=4), (4, 3, 3), False, True),
        (nn.Conv2d(4, 4, 1, groups=2), (4, 3, 3), False, False),
    ],
    ids=["linear", "convolution", "transposed", "depthwise", "grouped"],
)
def test_products_and_depthwise_convolutions_are_told_apart(layer, shape, product, depthwise):
    step = last_step(layer, *shape)
    assert (step.is_product, step.is_depthwise) == (product, depthwise)


def test_channels_of_a_linear_layer_are_last():
    assert last_step(nn.Linear(4, 2), 5, 4).channel_axis == 2
    assert last_step(nn.Conv1d(4, 2, 1), 4, 5).channel_axis == 1


def test_dropout_is_idle_in_eval_mode():
    assert last_step(nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5)), 4).is_idle_dropout
