"""Changes of images: each against what a pixel-wise rule gives, and none by a strength of zero."""

import pytest
import torch
from torch.testing import assert_close

from pluribus.training import image_changes as changes
from tests.cases import seeded

X = torch.rand(3, 2, 5, 6, generator=seeded(0))
STILL = torch.zeros(3)


def test_flip_mirrors_the_chosen_images():
    flipped = changes.flip(X, torch.tensor([True, False, True]))
    assert_close(flipped[0], X[0].flip(-1))
    assert_close(flipped[1], X[1])


def test_shift_moves_pixels_and_lets_zeros_in():
    moved = changes.shift(X, torch.tensor([2, 0, -1]), torch.tensor([0, -1, 3]))
    assert_close(moved[0, :, 2:], X[0, :, :-2])
    assert not moved[0, :, :2].any()
    assert_close(moved[1, :, :, :-1], X[1, :, :, 1:])
    assert_close(moved[2, :, :-1, 3:], X[2, :, 1:, :-3])
    assert not moved[2, :, -1].any()


@pytest.mark.parametrize("degrees", [90.0, -90.0])
def test_rotation_by_a_right_angle_is_exact(degrees):
    square = X[..., :5]
    turned = changes.rotate(square, torch.full((3,), degrees))
    assert_close(turned, square.rot90(1 if degrees > 0 else -1, (2, 3)), rtol=1e-4, atol=1e-5)


def test_half_a_turn_of_any_image_is_two_flips():
    turned = changes.rotate(X, torch.full((3,), 180.0))
    assert_close(turned, X.flip(2, 3), rtol=1e-4, atol=1e-5)


def test_solarised_pixels_are_inverted_in_the_range():
    image = torch.tensor([0.0, 0.25, 0.75, 1.0]).view(1, 1, 2, 2)
    inverted = changes.solarise(image, torch.tensor([0.5]))
    assert_close(inverted.flatten(), torch.tensor([0.0, 0.25, 0.25, 0.0]))


@pytest.mark.parametrize("change", [changes.brighten, changes.contrast])
def test_grey_levels_stay_in_the_range_of_the_image(change):
    changed = change(10 * X - 4, torch.tensor([0.9, -0.9, 0.5]))
    assert changed.amax((1, 2, 3)).le((10 * X - 4).amax((1, 2, 3)) + 1e-5).all()
    assert not torch.equal(changed, 10 * X - 4)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: changes.rotate(x, STILL),
        lambda x: changes.shear(x, STILL, STILL),
        lambda x: changes.brighten(x, STILL),
        lambda x: changes.contrast(x, STILL),
        lambda x: changes.solarise(x, STILL),
        lambda x: changes.shift(x, STILL.long(), STILL.long()),
    ],
)
def test_strength_zero_changes_nothing(change):
    assert_close(change(X), X, rtol=1e-4, atol=1e-5)
