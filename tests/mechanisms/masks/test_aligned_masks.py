"""Aligned masks: rounded where a weight of zero undoes it, and left where values are read otherwise."""

import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.masks.masked_program import MaskedProgram
from pluribus.mechanisms.masks.member_constants import MemberConstants
from pluribus.mechanisms.network.network import Network


class Wide(nn.Module):
    """A network whose mask keeps 33 of 40 channels."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 40), nn.Linear(40, 3)
        self.register_buffer("mask", (torch.arange(40) < 33).float())

    def forward(self, x):
        return self.last((self.first(x) * self.mask).relu())


class Summed(Wide):
    """The same, where the masked value is summed besides."""

    def forward(self, x):
        masked = self.first(x) * self.mask
        return self.last(masked.relu()) + masked.cos().sum(1, keepdim=True)


def constants_of(model):
    program = read_program(Network(model, torch.randn(2, 5)))
    values = dict(model.named_parameters()) | dict(model.named_buffers())
    return MemberConstants(MaskedProgram(program, frozenset({"mask"})), values, align=8)


def test_masks_are_rounded_up_and_extra_channels_have_no_weight():
    model = Wide()
    constants = constants_of(model)
    last = list(constants.weights)[-1]
    assert constants.inputs[last].count == 40
    weight, _ = constants.cut_weights(constants.masked.steps[last], None)
    assert_close(weight[:, :33], model.last.weight[:, :33])
    assert not weight[:, 33:].any()
    # The weights that the ensemble has are left as they are.
    assert model.last.weight[:, 33:].any()


def test_masks_whose_values_are_read_otherwise_stay():
    (mask,) = constants_of(Summed()).masks.values()
    assert mask.count == 33
