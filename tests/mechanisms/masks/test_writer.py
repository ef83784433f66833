"""Writer: the steps of a member with only the channels that are needed."""

import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.masks.masked_program import MaskedProgram
from pluribus.mechanisms.masks.member_constants import MemberConstants
from pluribus.mechanisms.masks.writer import Writer
from pluribus.mechanisms.network.network import Network
from tests.zoo import Apply


class Masked(nn.Module):
    """Layers, a mask, and a last layer, in float64."""

    def __init__(self, *layers):
        super().__init__()
        self.first, self.layers, self.last = nn.Conv2d(2, 4, 1), nn.Sequential(*layers), nn.Linear(4, 3)
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 1.0]))
        self.double().eval()

    def forward(self, x):
        return self.last(self.layers(self.first(x)).mean((2, 3)) * self.mask)


def written(model, x):
    program = read_program(Network(model, x))
    masked = MaskedProgram(program, frozenset({"mask"}))
    member = MemberConstants(masked, dict(model.named_parameters()) | dict(model.named_buffers()))
    steps = [*masked.trunk, *masked.tail]
    demand = member.propagate(steps, dict.fromkeys(program.reads(program.results)))
    writer = Writer(member, demand)
    writer.enter(dict.fromkeys(program.entries))
    return writer.write(steps, program.results)


def check(*layers):
    model, x = Masked(*layers), torch.randn(5, 2, 3, 3, dtype=torch.float64)
    module = written(model, x)
    assert_close(module(x)[0], model(x))
    return module


def test_masked_channels_are_not_computed():
    module = check(nn.ReLU())
    shapes = [tuple(parameter.shape) for parameter in module.parameters()]
    assert shapes == [(3, 2, 1, 1), (3,), (3, 3), (3,)]
    assert not any("mul" in str(node.target) for node in module.graph.nodes)


def test_depthwise_convolution_has_as_many_groups_as_channels():
    module = check(nn.Conv2d(4, 4, 3, padding=1, groups=4))
    assert 3 in [node.args[-1] for node in module.graph.nodes if len(node.args) == 7]


def test_reshapes_are_given_the_channels_that_are_left():
    module = check(Apply(lambda x: x.reshape(-1, 4, 9).relu().reshape(-1, 4, 3, 3)))
    assert all(parameter.shape[0] == 3 for parameter in module.parameters())


def test_operator_that_mixes_channels_gets_all_of_them():
    module = check(nn.Softmax(1))
    assert next(module.parameters()).shape[0] == 4


def test_tensors_of_the_network_are_cut_with_the_channels():
    check(nn.ReLU(), nn.BatchNorm2d(4), nn.PReLU(4))
