"""Pictures: their size, their range, their channels last."""

import numpy as np
import torch

from pluribus.comparison.picture_bytes import picture_bytes, shown_size


def test_sizes_keep_their_proportions():
    assert shown_size(10, 20, 96) == (10, 20)
    assert shown_size(200, 400, 100) == (50, 100)
    assert shown_size(1, 400, 100) == (1, 100)


def test_bytes_are_the_image():
    image = torch.tensor([[[[0.0, 0.5], [1.0, 0.25]]]])
    assert picture_bytes(image, 96)[..., 0].tolist() == [[[0, 128], [255, 64]]]


def test_large_and_standardised_images_are_shrunk_and_stretched():
    found = picture_bytes(torch.randn(2, 3, 300, 150), 96)
    assert found.shape == (2, 96, 48, 3)
    assert found.dtype == np.uint8
    assert [image.min() for image in found] == [0, 0]
    assert [image.max() for image in found] == [255, 255]
