"""Residual blocks: the first convolutions of blocks in residual networks, and none elsewhere."""

import torch
from torch import nn

from pluribus.backbones import cnn, wide_resnet
from pluribus.backbones.resnet import BasicBlock, Bottleneck, resnet
from pluribus.mechanisms.graph.residual_blocks import find_first_in_blocks
from pluribus.mechanisms.network.network import Network

X = torch.zeros(2, 3, 8, 8)


class TwoPaths(nn.Module):
    """A sum of two convolutions of the same value, of which none is a shortcut."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return (self.one(x) + self.other(x)).mean((2, 3))


def first_of_all_blocks(model):
    layers = [name for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d)]
    return {f"{name}.weight" for name in layers if name.endswith(".conv1")}


def test_blocks_of_resnets_begin_with_their_first_convolution():
    small = [resnet(block, (1, 2), 4, 3, "cifar", 4) for block in (BasicBlock, Bottleneck)]
    for model in (*small, wide_resnet(10, 1)):
        found = first_of_all_blocks(model)
        assert len(found) >= 3
        assert find_first_in_blocks(Network(model, X)) == found


def test_networks_without_shortcuts_have_no_blocks():
    assert find_first_in_blocks(Network(cnn(in_channels=3), X)) == set()
    assert find_first_in_blocks(Network(TwoPaths(), X)) == set()
