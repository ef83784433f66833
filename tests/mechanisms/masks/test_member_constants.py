"""Member constants: masks, weights with their norms, and what products read."""

import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.masks.masked_program import MaskedProgram
from pluribus.mechanisms.masks.member_constants import MemberConstants
from pluribus.mechanisms.masks.positions import Positions
from pluribus.mechanisms.network.network import Network


class Masked(nn.Module):
    """A network with a mask between two layers."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 3, 1)
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 1.0]))

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu() * self.mask.view(-1, 1, 1))


def member():
    model = Masked().eval()
    nn.init.normal_(model.norm.running_mean)
    program = read_program(Network(model, torch.zeros(2, 2, 3, 3)))
    values = dict(model.named_parameters()) | dict(model.named_buffers())
    return model, MemberConstants(MaskedProgram(program, frozenset({"mask"})), values)


def products(constants):
    return [constants.masked.steps[node] for node in constants.weights]


def test_mask_is_a_choice_of_channels():
    (mask,) = member()[1].masks.values()
    assert (mask.axis, mask.chosen.tolist()) == (1, [True, False, True, True])


def test_product_behind_a_mask_reads_the_channels_it_keeps():
    _, constants = member()
    first, last = products(constants)
    assert constants.inputs[first.node] is None
    assert constants.inputs[last.node].chosen.tolist() == [True, False, True, True]


def test_norm_becomes_part_of_the_product_before():
    model, constants = member()
    first, _ = products(constants)
    x = torch.randn(2, 2, 3, 3)
    weight, bias = constants.weights[first.node]
    assert len(constants.folded) == 1
    assert_close(nn.functional.conv2d(x, weight, bias), model.norm(model.first(x)))


def test_weights_are_cut_to_what_is_read_and_needed():
    model, constants = member()
    _, last = products(constants)
    weight, bias = constants.cut_weights(last, Positions(1, torch.tensor([False, True, False])))
    assert_close(weight, model.last.weight[[1]][:, [0, 2, 3]])
    assert_close(bias, model.last.bias[[1]])
