"""Dropout masks as tensors: a network with them computes what the seed does."""

import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.dropout.kept import Draw
from pluribus.mechanisms.dropout.lowered import DropoutAsTensors, named_masks
from pluribus.mechanisms.network.inputs import Inputs

x = torch.randn(5, 3)


def test_masks_of_a_seed_are_those_of_its_draw():
    network = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2)).eval()
    draw = Draw(7, ("1",), (0,))
    masked = DropoutAsTensors(network, draw, Inputs.of(x))
    with draw(network, 5):
        expected = network(x)
    assert masked.drawn == (((1, 8), 0.5),)
    assert_close(masked(x), expected, rtol=0, atol=0)
    assert_close(named_masks(masked.drawn, 7)["mask_0"], masked.mask_0)
