"""The small convolutional network: sizes of images, channels."""

import pytest
import torch
from torch.testing import assert_close

from pluribus.backbones import cnn


@pytest.mark.parametrize("size", [8, 16, 28, 32])
def test_pooling_turns_any_image_into_one_vector(size):
    network, x = cnn(width=4).eval(), torch.randn(2, 1, size, size)
    features = network.layer3(network.layer2(network.layer1(x)))
    assert features.shape == (2, 16, size // 4, size // 4)
    assert_close(network(x), network.fc(features.mean((2, 3))))
