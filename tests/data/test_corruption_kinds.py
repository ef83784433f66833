"""Kinds of corruption, each against a slow and obvious way to do the same."""

import colorsys

import numpy as np
import torch
from pytest import approx, importorskip, mark
from scipy import ndimage
from torch.testing import assert_close

from pluribus.data import corruption_kinds as kinds
from pluribus.data.corruption_severities import constants
from pluribus.data.image_filters import gaussian_blur
from pluribus.data.streams import Streams


def images(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def two_streams():
    return Streams(["a", "b"])


def through_hsv(x, change):
    """Every pixel changed in hue, saturation and value."""
    pixels = x.movedim(1, -1).reshape(-1, 3).tolist()
    changed = [colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*pixel))) for pixel in pixels]
    batch, _, height, width = x.shape
    return torch.tensor(changed).double().view(batch, height, width, 3).movedim(-1, 1)


def with_greys():
    x = images(1, 3, 8, 8)
    x[:, :, 0] = x[:, :1, 0]
    x[:, :, 1] = 0
    return x


def test_brightness_raises_the_value():
    expected = through_hsv(with_greys(), lambda h, s, v: (h, s, min(v + 0.3, 1)))
    assert_close(kinds.brightness(with_greys(), two_streams(), 0.3), expected, atol=1e-6, rtol=0)


@mark.parametrize(("factor", "add"), [(0.3, 0), (2, 0), (5, 0.1), (20, 0.2)])
def test_saturate_scales_the_saturation(factor, add):
    expected = through_hsv(with_greys(), lambda h, s, v: (h, min(s * factor + add, 1), v))
    assert_close(kinds.saturate(with_greys(), two_streams(), factor, add), expected, atol=1e-6, rtol=0)


def test_contrast_keeps_the_mean_of_each_channel():
    x = images(2, 3, 9, 9)
    result = kinds.contrast(x, two_streams(), 0.4)
    assert_close(result.mean((2, 3)), x.mean((2, 3)))
    assert_close(result.std((2, 3)), 0.4 * x.std((2, 3)))


def test_impulse_noise_hits_its_share_with_as_many_zeros_as_ones():
    x = torch.full((2, 3, 200, 200), 0.5)
    result = kinds.impulse_noise(x, two_streams(), 0.1)
    assert (result == 0).float().mean().item() == approx(0.05, abs=0.003)
    assert (result == 1).float().mean().item() == approx(0.05, abs=0.003)


def test_shot_noise_has_the_variance_of_counts():
    result = kinds.shot_noise(torch.full((2, 3, 200, 200), 0.4), two_streams(), 50)
    assert result.mean().item() == approx(0.4, rel=0.01)
    assert result.var().item() == approx(0.4 / 50, rel=0.03)


@mark.parametrize(("size", "reach", "rounds"), [((8, 9), 1, 1), ((12, 10), 2, 2), ((14, 17), 4, 2)])
def test_glass_blur_visits_pixels_one_by_one(size, reach, rounds):
    height, width = size
    x = images(2, 3, height, width)
    moves = two_streams().integers(-reach, reach, 2, rounds, height - 2 * reach, width - 2 * reach)
    shuffled = gaussian_blur(x, 0.7)
    for sample, move in zip(shuffled, moves, strict=True):
        for i in range(rounds):
            for h in range(height - reach, reach, -1):
                for w in range(width - reach, reach, -1):
                    down, right = move[:, i, height - reach - h, width - reach - w].tolist()
                    sample[:, h, w] = sample[:, h + down, w + right]
    result = kinds.glass_blur(x, two_streams(), 0.7, reach, rounds)
    assert_close(result, gaussian_blur(shuffled, 0.7))


@mark.parametrize("severity", [1, 2, 3, 4, 5])
@mark.parametrize("size", [32, 64, 100])
def test_elastic_transform_is_that_of_opencv_and_scipy(severity, size):
    cv2 = importorskip("cv2")
    smooth = gaussian_blur(images(1, 1, size, size), 2)
    force, sigma, shift = constants("elastic_transform", severity, size)
    streams = Streams(["a"])
    jitter = streams.uniform(-shift * size, shift * size, 3, 2)[0].numpy()
    half, third = size // 2, size // 3
    points = half + third * np.float32([[1, 1], [1, -1], [-1, -1]])
    affine = cv2.getAffineTransform(points, points + jitter)
    expected = cv2.warpAffine(smooth[0, 0].numpy(), affine, (size, size), borderMode=cv2.BORDER_REFLECT_101)
    if force:
        drawn = streams.uniform(-1, 1, 2, size, size)[0].double().numpy()
        dx, dy = (ndimage.gaussian_filter(d, sigma * size, mode="reflect", truncate=3) for d in drawn)
        y, x = np.mgrid[:size, :size]
        places = np.stack([y + dy * force * size, x + dx * force * size])
        expected = ndimage.map_coordinates(expected, places, order=1, mode="reflect")
    result = kinds.elastic_transform(smooth, Streams(["a"]), force, sigma, shift)[0, 0]
    # OpenCV interpolates at steps of 1/32 pixel.
    assert_close(result, torch.from_numpy(expected), rtol=0, atol=0.02)
    assert (result - torch.from_numpy(expected)).abs().mean() < 2e-3


def test_fog_keeps_the_largest_value_as_the_limit():
    x = images(2, 3, 20, 20) * 0.6
    result = kinds.fog(x, two_streams(), 1.5, 2)
    assert result.max() <= x.max()
    assert_close(kinds.fog(torch.zeros_like(x), two_streams(), 1.5, 2), torch.zeros_like(x))


def test_pixelate_by_half_is_the_mean_of_two_by_two():
    x = images(1, 3, 8, 12)
    expected = torch.nn.functional.avg_pool2d(x, 2).repeat_interleave(2, 2).repeat_interleave(2, 3)
    assert_close(kinds.pixelate(x, two_streams(), 0.5), expected)


def test_snow_only_brightens():
    x = images(2, 3, 32, 32)
    assert (kinds.snow(x, two_streams(), *constants("snow", 3, 32)) >= x - 1e-9).all()


@mark.parametrize("size", [8, 32, 64, 112])
def test_frost_has_the_colours_and_contrast_of_its_photographs(size):
    black = torch.zeros(60, 3, size, size)
    panes = kinds.frost(black, Streams(map(str, range(60))), 1, 1).double()
    colours = torch.tensor(kinds.FROSTS).double()
    distance = (panes.mean((2, 3))[:, None] - colours[:, :3]).abs().amax(2)
    nearest = distance.argmin(1)
    assert distance.amin(1).max() < 0.15
    assert nearest.unique().numel() >= 4
    contrast = panes[:, 1].flatten(1).std(1) / colours[nearest, 3]
    assert contrast.mean().item() == approx(1, abs=0.1)


@mark.parametrize(("size", "grain"), [(32, 0.83), (64, 0.63), (224, 0.45)])
def test_frost_is_as_grainy_as_its_photographs(size, grain):
    panes = kinds.frost(torch.zeros(20, 3, size, size), Streams(map(str, range(20))), 1, 1)[:, 1]
    steps = (panes[:, :, 1:] - panes[:, :, :-1]).abs().mean((1, 2)) / panes.flatten(1).std(1)
    assert steps.mean().item() == approx(grain, abs=0.15)


@mark.parametrize("severity", [4, 5])
def test_mud_covers_whole_pixels_in_brown(severity):
    white = torch.ones(2, 3, 64, 64, dtype=torch.float64)
    result = kinds.spatter(white, two_streams(), *constants("spatter", severity, 64))
    covered = (1 - result[:, :1]) / (1 - kinds.MUD[0])
    brown = torch.tensor(kinds.MUD).double().view(3, 1, 1)
    assert_close(result, 1 - covered * (1 - brown), rtol=0, atol=1e-6)
    assert ((covered == 0) | (covered > 0.79)).all()
    assert (covered > 0.79).any()


def test_water_is_pale_turquoise_of_the_given_opacity():
    black = torch.zeros(2, 3, 64, 64, dtype=torch.float64)
    result = kinds.spatter(black, two_streams(), *constants("spatter", 3, 64))
    assert_close(result[:, 0] / 175, result[:, 2] / 238, rtol=0, atol=1e-7)
    assert_close(result.amax((1, 2, 3)), torch.full((2,), 0.6 * 238 / 255).double(), rtol=0, atol=1e-6)


def test_a_layer_without_drops_leaves_the_image():
    x = images(2, 3, 16, 16)
    assert_close(kinds.spatter(x, two_streams(), 0.1, 0.01, 1, 0.7, 0.6, 0), x)
