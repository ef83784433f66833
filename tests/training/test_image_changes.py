"""Changes of images: each against what a pixel-wise rule gives, and none by a strength of zero."""

import numpy
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


def test_translation_moves_by_a_share_of_the_side():
    moved = changes.translate(X, torch.tensor([1 / 3, 0.0, 0.0]), torch.tensor([0.0, -0.4, 0.0]))
    right, up = changes.shift(X, torch.tensor([0, -2, 0]), torch.tensor([2, 0, 0])), X[2]
    assert_close(moved[:2], right[:2], rtol=1e-4, atol=1e-5)
    assert_close(moved[2], up, rtol=1e-4, atol=1e-5)


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


@pytest.mark.parametrize("change", [changes.brighten, changes.contrast, changes.sharpen])
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
        lambda x: changes.translate(x, STILL, STILL),
        lambda x: changes.colour(x, STILL),
        lambda x: changes.sharpen(x, STILL),
        lambda x: changes.posterise(x, STILL + 8),
    ],
)
def test_strength_zero_changes_nothing(change):
    assert_close(change(X), X, rtol=1e-4, atol=1e-5)


def enhance(name, by):
    pillow = pytest.importorskip("PIL.ImageEnhance")
    return lambda image: getattr(pillow, name)(image).enhance(1 + by)


def operate(name, *given):
    pillow = pytest.importorskip("PIL.ImageOps")
    return lambda image: getattr(pillow, name)(image, *given)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("change", "reference", "off"),
    [
        (lambda x: changes.brighten(x, torch.tensor([-0.4])), lambda: enhance("Brightness", -0.4), 1),
        (lambda x: changes.brighten(x, torch.tensor([0.7])), lambda: enhance("Brightness", 0.7), 1),
        (lambda x: changes.contrast(x, torch.tensor([0.6])), lambda: enhance("Contrast", 0.6), 1),
        (lambda x: changes.colour(x, torch.tensor([-0.5])), lambda: enhance("Color", -0.5), 1),
        (lambda x: changes.sharpen(x, torch.tensor([0.8])), lambda: enhance("Sharpness", 0.8), 2),
        (lambda x: changes.posterise(x, torch.tensor([3])), lambda: operate("posterize", 3), 0),
        (changes.equalise, lambda: operate("equalize"), 0),
        (changes.autocontrast, lambda: operate("autocontrast"), 1),
        (lambda x: changes.solarise(x, torch.tensor([0.25])), lambda: operate("solarize", 192), 0),
    ],
    ids=[
        *("darker", "brighter", "contrast", "colour", "sharpness"),
        *("posterise", "equalise", "autocontrast", "solarise"),
    ],
)
def test_grey_levels_change_as_in_pillow(change, reference, off, channels):
    """Off by at most so many levels, as Pillow rounds to whole ones in between."""
    pillow = pytest.importorskip("PIL.Image")
    levels = torch.randint(40, 200, (channels, 40, 40), generator=seeded(1))
    # Unequal channels, and both ends of the range in the first.
    levels[-1] = levels[-1] // 2 + 20
    levels[0, 0, :2] = torch.tensor([0, 255])
    bytes_ = levels.to(torch.uint8).numpy()
    image = pillow.fromarray(bytes_[0] if channels == 1 else bytes_.transpose(1, 2, 0))
    expected = torch.tensor(numpy.asarray(reference()(image)).copy()).float()
    expected = expected.unsqueeze(0) if channels == 1 else expected.permute(2, 0, 1)
    changed = change(levels.float().unsqueeze(0))[0]
    assert_close(changed, expected, rtol=0, atol=off + 0.01)


def test_images_without_contrast_stay():
    flat = torch.full((2, 3, 20, 20), 0.3)
    for change in (changes.equalise, changes.autocontrast):
        assert_close(change(flat), flat, rtol=0, atol=0)
