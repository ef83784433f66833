"""Wide residual networks: pre-activation, biases, strides."""

import torch
from torch import nn
from torch.testing import assert_close

from pluribus.backbones import wide_resnet


def test_block_follows_its_equation_with_the_stride_at_the_end():
    block, x = wide_resnet(10, 1).layer2[0].eval(), torch.randn(2, 16, 8, 8)
    out = block.conv2(block.bn2(block.conv1(block.bn1(x).relu())).relu())
    assert_close(block(x), out + block.shortcut(x))
    assert [block.conv1.stride[0], block.conv2.stride[0], block.shortcut.stride[0]] == [1, 2, 2]


def test_every_convolution_has_a_bias():
    convolutions = [module for module in wide_resnet(16, 2).modules() if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == 1 + 3 * (2 * 2 + 1)
    assert all(convolution.bias is not None for convolution in convolutions)


def test_dropout_lies_between_the_convolutions():
    network = wide_resnet(10, 1, dropout=0.3)
    rates = {name: module.p for name, module in network.named_modules() if isinstance(module, nn.Dropout)}
    assert rates == {f"layer{number}.0.dropout": 0.3 for number in (1, 2, 3)}
    order = [name for name, _ in network.layer1[0].named_children()]
    assert order.index("conv1") < order.index("dropout") < order.index("conv2")


def test_last_features_are_normalised_and_rectified():
    network, x = wide_resnet(10, 1).eval(), torch.randn(2, 3, 16, 16)
    features = network.layer3(network.layer2(network.layer1(network.conv1(x))))
    assert_close(network(x), network.fc(network.bn_final(features).relu().mean((2, 3))))
