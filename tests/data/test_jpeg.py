"""JPEG: libjpeg's results to the last bit, quantisation tables, fixed points."""

import io
import itertools

import numpy as np
import torch
from pytest import importorskip, mark
from torch.testing import assert_close

from pluribus.data.jpeg import BASIS, CHROMA_TABLE, LUMA_TABLE, jpeg, scaled_table


def smooth(channels, height, width, seed=0):
    """Blobs with some noise, in bytes."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, channels, 5, 5, generator=generator)
    blobs = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic")
    noise = torch.randn(1, channels, height, width, generator=generator)
    return ((blobs + 0.03 * noise).clamp(0, 1) * 255).round().byte()


@mark.parametrize("quality", [1, 7, 10, 25, 40, 50, 65, 80, 95, 100])
def test_images_equal_those_of_pillow(quality):
    sizes = [(8, 8), (9, 13), (28, 28), (32, 32), (64, 48), (37, 50), (224, 224)]
    for size, channels in itertools.product(sizes, [1, 3]):
        check_against_pillow(size, channels, quality)


def check_against_pillow(size, channels, quality):
    pillow = importorskip("PIL.Image")
    pixels = smooth(channels, *size, seed=quality)
    file = io.BytesIO()
    pillow.fromarray(pixels[0].permute(1, 2, 0).squeeze(2).numpy()).save(file, "JPEG", quality=quality)
    expected = torch.from_numpy(np.array(pillow.open(file))).reshape(*size, channels).permute(2, 0, 1)
    result = (jpeg(pixels / 255, quality)[0] * 255).round()
    # libjpeg-turbo gives every level; other builds of libjpeg may round the odd pixel differently.
    assert_close(result, expected.float(), rtol=0, atol=1)
    assert (result != expected).float().mean() < 0.01


@mark.parametrize("quality", [10, 30, 50, 75, 100])
def test_tables_are_those_that_pillow_writes(quality):
    pillow = importorskip("PIL.Image")
    file = io.BytesIO()
    pillow.new("RGB", (8, 8)).save(file, "JPEG", quality=quality)
    written = pillow.open(file).quantization
    for table, values in ((LUMA_TABLE, written[0]), (CHROMA_TABLE, written[1])):
        assert scaled_table(table, quality).flatten().tolist() == list(values)


def test_the_basis_is_the_cosine_transform_to_13_bits():
    k, n = torch.meshgrid(torch.arange(8.0).double(), torch.arange(8.0).double(), indexing="ij")
    cosines = torch.cos((2 * n + 1) * k * torch.pi / 16) * torch.where(k == 0, 1, 2**0.5)
    assert_close(BASIS, cosines * 8192, rtol=0, atol=2)


def test_flat_grey_images_survive_the_best_quality():
    levels = torch.arange(256.0).view(-1, 1, 1, 1).expand(-1, 1, 16, 16) / 255
    assert_close(jpeg(levels, 100), levels)


def test_dtype_is_kept():
    images = smooth(3, 16, 16) / 255
    for dtype in (torch.float64, torch.float16):
        assert jpeg(images.to(dtype), 50).dtype == dtype
