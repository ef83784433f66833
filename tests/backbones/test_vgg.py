"""VGG: stages, pooling, width."""

import torch
from torch import nn

from pluribus.backbones import vgg


def test_stages_have_the_planes_layers_and_pooling_asked_for():
    network, x = vgg(width=2), torch.randn(2, 3, 32, 32)
    shapes, convolutions = [], []
    for number in range(1, 6):
        layer = network.get_submodule(f"layer{number}")
        x = layer(x)
        shapes.append(tuple(x.shape[1:]))
        convolutions.append(sum(isinstance(module, nn.Conv2d) for module in layer.modules()))
    assert shapes == [(32, 16, 16), (64, 8, 8), (128, 4, 4), (256, 2, 2), (256, 2, 2)]
    assert convolutions == [1, 1, 2, 2, 2]


def test_convolutions_leave_the_bias_to_their_norm():
    convolutions = [module for module in vgg().modules() if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == 8
    assert all(convolution.bias is None for convolution in convolutions)
