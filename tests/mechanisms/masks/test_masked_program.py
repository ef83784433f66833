"""Masked program: what members share, what a mask reaches, and what no input reaches."""

import torch
from torch import nn

from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.masks.masked_program import MaskedProgram
from pluribus.mechanisms.network.network import Network


class Masked(nn.Module):
    """A network with a mask between two layers."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 3, 1)
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 1.0]))

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu() * self.mask.view(-1, 1, 1))


def masked_program():
    return MaskedProgram(read_program(Network(Masked().eval(), torch.zeros(2, 2, 3, 3))), frozenset({"mask"}))


def test_steps_are_split_at_the_mask():
    masked = masked_program()
    assert (masked.trunk[0].operator, masked.trunk[-1].operator) == ("conv2d", "relu")
    assert [step.operator for step in masked.tail] == ["mul", "conv2d"]


def test_product_with_a_reshaped_mask_is_a_masking():
    masked = masked_program()
    assert [step.operator for step in masked.maskings.values()] == ["mul"]


def test_reshaped_mask_is_constant():
    assert [str(node.target) for node in masked_program().constant] == ["aten.view.default"]


def test_random_numbers_are_not_constant():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            return self.layer(x) + torch.rand(3)

    program = read_program(Network(Noisy(), torch.zeros(2, 3)))
    assert MaskedProgram(program, frozenset()).constant == []
