"""Returned shapes: of modules that run once and return a tensor."""

import torch
from torch import nn

from pluribus.mechanisms.exits.returned_shapes import returned_shapes
from pluribus.mechanisms.network.network import Network
from tests import zoo


def test_modules_that_run_once_have_the_shape_they_return():
    shapes, predicted = returned_shapes(Network(nn.Sequential(nn.Linear(6, 4), nn.ReLU()), torch.zeros(2, 6)))
    assert shapes == {"": (2, 4), "0": (2, 4), "1": (2, 4)}
    assert predicted == (2, 4)


def test_modules_that_run_twice_or_never_have_none():
    class Reused(zoo.ThreeLayers):
        def forward(self, x):
            return self.first(self.first.weight.new_zeros(2, 6)).sum() + self.first(x)

    assert set(returned_shapes(Network(Reused(), torch.zeros(2, 6)))[0]) == {""}


def test_modules_that_return_a_scalar_have_none():
    class Summed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.total = nn.Linear(6, 3), zoo.Apply(torch.sum)

        def forward(self, x):
            x = self.layer(x)
            return x + self.total(x)

    assert "total" not in returned_shapes(Network(Summed(), torch.zeros(2, 6)))[0]


def test_hooks_are_gone_afterwards():
    network = Network(zoo.mlp(), torch.zeros(2, 6))
    returned_shapes(network)
    assert not any(layer._forward_hooks for layer in network.module.modules())
