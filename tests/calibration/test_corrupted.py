"""Corrupted validation images: those of the task's own scaling, and nothing for other inputs."""

import pytest
import torch
from torch.testing import assert_close

from pluribus.calibration.corrupted import KINDS, SEVERITY, corrupted_images, range_of
from pluribus.data.corruptions import corrupt
from pluribus.data.scaling import UNSCALED, Scaling

IMAGES = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
STANDARD = Scaling(torch.tensor([0.4, 0.5, 0.6]).reshape(3, 1, 1), torch.full((3, 1, 1), 0.2))


def test_images_are_corrupted_before_they_are_scaled():
    found = corrupted_images(STANDARD.apply(IMAGES), STANDARD)
    assert len(found) == len(KINDS)
    assert_close(found[2], STANDARD.apply(corrupt(IMAGES, KINDS[2], SEVERITY)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("scaling", [None, UNSCALED])
def test_images_of_unknown_scaling_are_read_by_the_range_of_each_channel(scaling):
    x = 5 * IMAGES - torch.tensor([1.0, 2.0, 3.0]).reshape(3, 1, 1)
    assert_close(range_of(x).invert(x).amin((0, 2, 3)), torch.zeros(3), atol=1e-6, rtol=0)
    assert_close(range_of(x).invert(x).amax((0, 2, 3)), torch.ones(3))
    for one in corrupted_images(x, scaling):
        assert one.shape == x.shape
        assert x.min() - 0.01 <= one.min() < one.max() <= x.max() + 0.01


@pytest.mark.parametrize("shape", [(3, 4), (3, 2, 16, 16), (3, 1, 4, 4), (3, 16, 16)])
def test_other_inputs_are_not_corrupted(shape):
    assert corrupted_images(torch.zeros(shape), None) == []
