"""Pyramidal residual networks: channels, shortcuts, norms, initial weights."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.backbones import pyramidnet
from pluribus.backbones.pyramidnet import PyramidBlock, pyramid


def test_channels_grow_by_five_in_every_block():
    assert pyramid(54, 270) == list(range(16, 287, 5))


def test_halves_are_rounded_to_even():
    assert pyramid(6, 3) == [16, 16, 17, 18, 18, 18, 19]


@pytest.mark.parametrize("stride", [1, 2])
def test_added_channels_have_a_zero_shortcut(stride):
    block, x = PyramidBlock(3, 5, stride).eval(), torch.randn(2, 3, 7, 7)
    out = block.bn3(block.conv2(block.bn2(block.conv1(block.bn1(x))).relu()))
    shortcut = block(x) - out
    assert_close(shortcut[:, :3], block.downsample(x))
    assert_close(shortcut[:, 3:], torch.zeros_like(shortcut[:, 3:]))


def test_depth_110_has_164_norms_with_49798_parameters():
    with torch.device("meta"):
        network = pyramidnet(110, 270)
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert (len(norms), sum(2 * norm.num_features for norm in norms)) == (164, 49_798)
    assert (network.fc.in_features, network.fc.out_features) == (286, 100)


def test_convolutions_start_with_variance_two_over_fan_out():
    torch.manual_seed(0)
    weight = pyramidnet(8, 240).layer3[0].conv2.weight
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (9 * 256)), rel=0.01)
