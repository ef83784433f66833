"""Filters: against scipy and OpenCV, and on images where the answer is plain."""

import math

import numpy as np
import torch
from pytest import importorskip, mark
from scipy import ndimage
from torch.testing import assert_close

from pluribus.data import image_filters as filters


def field(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@mark.parametrize("sigma", [0.05, 0.4, 1.0, 2.5, 20.0])
@mark.parametrize(("edges", "truncate"), [("nearest", 4.0), ("reflect", 3.0), ("mirror", 4.0)])
def test_gaussian_blur_is_that_of_scipy(sigma, edges, truncate):
    images = field(1, 1, 9, 14)
    expected = ndimage.gaussian_filter(images[0, 0].numpy(), sigma, mode=edges, truncate=truncate)
    result = filters.gaussian_blur(images, sigma, truncate, edges)
    assert_close(result[0, 0], torch.from_numpy(expected))


def test_filtering_is_correlation_with_mirrored_edges():
    images, kernel = field(2, 3, 8, 11), field(5, 5, seed=1)
    expected = [ndimage.correlate(x, kernel.numpy(), mode="mirror") for x in images.flatten(0, 1).numpy()]
    assert_close(filters.filtered(images, kernel).flatten(0, 1), torch.from_numpy(np.stack(expected)))


@mark.parametrize(("radius", "alias_sigma"), [(0.3, 0.4), (1.5, 0.1), (3, 0.1), (8, 0.5), (10, 0.5)])
def test_disks_are_those_of_opencv(radius, alias_sigma):
    cv2 = importorskip("cv2")
    line = np.arange(-8, 9) if radius <= 8 else np.arange(-radius, radius + 1)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float64)
    size = (3, 3) if radius <= 8 else (5, 5)
    expected = cv2.GaussianBlur(disk / disk.sum(), ksize=size, sigmaX=alias_sigma)
    assert_close(filters.disk_kernel(radius, alias_sigma), torch.from_numpy(expected))


def test_motion_blur_smears_a_point_along_its_direction():
    point = torch.zeros(4, 1, 15, 15, dtype=torch.float64)
    point[:, :, 7, 7] = 1
    result = filters.motion_blur(point, 2, 1.5, torch.tensor([0.0, 90.0, 180.0, 45.0]))[:, 0]
    weights = torch.exp(-(torch.arange(5.0).double() ** 2) / 4.5)
    weights = weights / weights.sum()
    assert_close(result[0, 7, 3:8], weights.flip(0))
    assert_close(result[1, 3:8, 7], weights.flip(0))
    assert_close(result[2, 7, 7:12], weights)
    assert_close(result[3].sum(), torch.tensor(1.0).double())
    assert_close(result[3].diagonal().sum(), torch.tensor(1.0).double())


def test_motion_blur_keeps_flat_images_flat_beyond_their_edges():
    flat = torch.full((2, 1, 8, 8), 0.3)
    assert_close(filters.motion_blur(flat, 14, 12, torch.tensor([10.0, -100.0])), flat)


@mark.parametrize("factor", [1.0, 1.03, 1.25, 1.75, 4.5])
@mark.parametrize("size", [8, 28, 33])
def test_zoom_is_that_of_scipy(factor, size):
    images = field(1, 1, size, size)
    part = math.ceil(size / factor)
    top = (size - part) // 2
    expected = ndimage.zoom(images[0, 0, top : top + part, top : top + part].numpy(), factor, order=1)
    top = (len(expected) - size) // 2
    expected = expected[top : top + size, top : top + size]
    assert_close(filters.zoom(images, [factor])[0, 0], torch.from_numpy(expected))


def test_zooms_add_up():
    images = field(1, 2, 12, 9)
    one, two = filters.zoom(images, [1.1]), filters.zoom(images, [1.4])
    assert_close(filters.zoom(images, [1.1, 1.4]), one + two)


@mark.parametrize(("size", "new"), [(32, 30), (28, 18), (8, 5), (224, 134), (18, 28), (7, 8)])
def test_boxes_are_those_of_pillow(size, new):
    pillow = importorskip("PIL.Image")
    line = field(1, size).float()
    expected = pillow.fromarray(line.numpy()).resize((new, 1), pillow.Resampling.BOX)
    assert_close(filters.box_matrix(size, new).float() @ line[0], torch.from_numpy(np.array(expected))[0])


@mark.parametrize(("mirror_last", "mode"), [(True, "reflect"), (False, "mirror")])
def test_warp_is_that_of_scipy(mirror_last, mode):
    images = field(1, 1, 10, 13)
    rows, columns = field(1, 10, 13, seed=1) * 30 - 10, field(1, 10, 13, seed=2) * 35 - 10
    expected = ndimage.map_coordinates(
        images[0, 0].numpy(), np.stack([rows[0].numpy(), columns[0].numpy()]), order=1, mode=mode
    )
    result = filters.warp(images, rows, columns, mirror_last)
    assert_close(result[0, 0], torch.from_numpy(expected))


@mark.parametrize("decay", [1.4, 3.0])
def test_fractals_follow_the_diamond_square_rule(decay):
    wobbles = field(2, 16, 16) * 2 - 1
    expected = torch.stack([slow_fractal(sample, decay) for sample in wobbles])
    assert_close(filters.plasma_fractal(wobbles, decay), expected)


def slow_fractal(wobbles, decay):
    """Diamond-square on a torus, point by point."""
    size = len(wobbles)
    heights, step, strength = torch.zeros_like(wobbles), size, 100.0
    while step > 1:
        half = step // 2
        squares = [(y, x) for y in range(half, size, step) for x in range(half, size, step)]
        sides = [(y, (x + half) % size) for y, x in squares] + [((y + half) % size, x) for y, x in squares]
        for points, corners in (
            (squares, [(-half, -half), (-half, half), (half, -half), (half, half)]),
            (sides, [(-half, 0), (half, 0), (0, -half), (0, half)]),
        ):
            for y, x in points:
                around = sum(heights[(y + dy) % size, (x + dx) % size] for dy, dx in corners)
                heights[y, x] = around / 4 + strength**2 * wobbles[y, x]
        step, strength = half, strength / decay
    heights = heights - heights.min()
    return heights / heights.max()


def drops(sigma, seed=0):
    """Levels such as `spatter` draws them, `[2, 40, 48]`."""
    noise = torch.randn(2, 1, 40, 48, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    liquid = filters.gaussian_blur(0.65 + 0.3 * noise, sigma)
    return torch.where(liquid < 0.68, 0.0, (liquid * 255).floor())[:, 0].clamp(max=255)


@mark.parametrize("sigma", [0.7, 1.0, 2.0, 4.0])
def test_edges_are_those_of_opencv(sigma):
    cv2 = importorskip("cv2")
    levels = drops(sigma)
    expected = [cv2.Canny(sample.byte().numpy(), 50, 150) > 0 for sample in levels]
    assert_close(filters.canny_edges(levels, 50, 150), torch.from_numpy(np.stack(expected)))


@mark.parametrize("count", [1, 5, 100])
def test_distances_are_those_of_opencv(count):
    cv2 = importorskip("cv2")
    targets = field(1, 40, 48).flatten().argsort().view(1, 40, 48) < count
    expected = cv2.distanceTransform((~targets[0]).byte().numpy(), cv2.DIST_L2, 5)
    result = filters.capped_distance(targets, cap=20)[0].float()
    assert_close(result, torch.from_numpy(expected).clamp(max=20), rtol=0, atol=1e-4)


def test_distances_are_nearly_euclidean():
    targets = field(1, 30, 30).flatten().argsort().view(1, 30, 30) < 4
    expected = torch.from_numpy(ndimage.distance_transform_edt(~targets[0].numpy())).clamp(max=20)
    assert_close(filters.capped_distance(targets, cap=20)[0], expected, rtol=0.021, atol=0)


def test_without_a_target_the_distance_is_the_cap():
    none = torch.zeros(1, 9, 9, dtype=torch.bool)
    assert_close(filters.capped_distance(none, cap=20), torch.full((1, 9, 9), 20.0).double())


def test_equalised_levels_are_those_of_opencv():
    cv2 = importorskip("cv2")
    levels = (field(3, 20, 30) ** 3 * 20).floor()
    levels[2] = 7
    expected = [cv2.equalizeHist(sample.byte().numpy()) for sample in levels]
    assert_close(filters.equalised(levels), torch.from_numpy(np.stack(expected)).double())


def test_luma_of_grey_is_itself():
    grey = field(2, 1, 4, 4)
    assert_close(filters.luma(grey.expand(-1, 3, -1, -1)), grey)
    assert_close(filters.luma(grey), grey)
