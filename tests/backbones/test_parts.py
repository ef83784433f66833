"""Shared parts: the residual sum, dropout, stages, the classifier."""

import torch
from torch import nn
from torch.testing import assert_close

from pluribus.backbones.parts import Residual, classifier, conv3x3, drop, stage


def test_residual_adds_its_input_to_its_chain():
    first, second, x = nn.Linear(3, 5), nn.Linear(5, 3), torch.randn(2, 3)
    assert_close(Residual(first, second)(x), x + second(first(x)))


def test_rate_zero_leaves_no_random_layer():
    assert isinstance(drop(0.0), nn.Identity)
    assert drop(0.5).p == 0.5


def test_only_the_first_block_of_a_stage_has_the_stride():
    blocks = stage(conv3x3, [3, 5, 5, 7], stride=2)
    made = [(block.in_channels, block.out_channels, block.stride) for block in blocks]
    assert made == [(3, 5, (2, 2)), (5, 5, (1, 1)), (5, 7, (1, 1))]


def test_classifier_pools_the_last_stage():
    network = classifier({"conv1": conv3x3(1, 3)}, [conv3x3(3, 4), nn.ReLU()], 4, 2, {"end": nn.Tanh()})
    names = [name for name, _ in network.named_children()]
    assert names == ["conv1", "layer1", "layer2", "end", "avgpool", "flatten", "fc"]
    x = torch.randn(2, 1, 6, 6)
    features = network.layer1(network.conv1(x)).relu().tanh().mean((2, 3))
    assert_close(network(x), network.fc(features))
