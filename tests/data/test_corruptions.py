"""Corruptions: range, seeds, batches, grey images, growth with severity, refusals, the reference package."""

import importlib
import itertools
import warnings

import numpy as np
import torch
from pytest import approx, fixture, importorskip, mark, param, raises
from torch.testing import assert_close

from pluribus.data import corruptions
from pluribus.data.corruptions import EXTRA_KINDS, KINDS, corrupt
from pluribus.data.image_filters import luma
from pluribus.data.streams import Streams
from pluribus.errors import InputError, SettingError

ALL = KINDS + EXTRA_KINDS
SEVERITIES = [1, 2, 3, 4, 5]
NOISES = ["gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"]
CERTAIN = [
    "brightness",
    "contrast",
    "saturate",
    "pixelate",
    "jpeg_compression",
    "gaussian_blur",
    "defocus_blur",
    "zoom_blur",
]
each_kind = mark.parametrize("kind", ALL)
# The mildest and the strongest run always, those between by `make test-slow`.
each_severity = mark.parametrize("severity", [1, *(param(one, marks=mark.slow) for one in (2, 3, 4)), 5])
SIZES = [(8, 8), (28, 28), (33, 64), (70, 66)]


def natural(batch, channels, height, width, seed=0):
    """Images with the spectrum of photographs, in steps of 1/255."""
    noise = torch.randn(batch, channels + 1, height, width, generator=torch.Generator().manual_seed(seed))
    frequency = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width))
    spectrum = torch.fft.rfft2(noise) / frequency.clamp(min=1 / max(height, width)) ** 1.2
    fields = torch.fft.irfft2(spectrum, s=(height, width))
    fields = fields / fields.std((2, 3), keepdim=True)
    return ((0.45 + 0.2 * (fields[:, :1] + 0.5 * fields[:, 1:])).clamp(0, 1) * 255).round() / 255


def test_the_kinds_are_those_of_imagenet_c():
    noises, blurs = "gaussian_noise shot_noise impulse_noise", "defocus_blur glass_blur motion_blur zoom_blur"
    weather, digital = "snow frost fog brightness", "contrast elastic_transform pixelate jpeg_compression"
    assert " ".join(KINDS) == f"{noises} {blurs} {weather} {digital}"
    assert " ".join(EXTRA_KINDS) == "speckle_noise gaussian_blur spatter saturate"


def check_shape_and_range(kind, severity, size):
    for channels in (1, 3):
        images = natural(2, channels, *size)
        before = images.clone()
        result = corrupt(images, kind, severity)
        assert result.shape == images.shape
        assert result.dtype == torch.float32
        assert 0 <= result.min() <= result.max() <= 1
        assert_close(images, before, rtol=0, atol=0)


@each_kind
def test_corrupted_images_keep_shape_and_range(kind):
    # Each severity and each size once; `make test-slow` crosses them.
    for severity, size in zip(SEVERITIES, [*SIZES, SIZES[1]], strict=True):
        check_shape_and_range(kind, severity, size)


@mark.slow
@each_kind
def test_corrupted_images_keep_shape_and_range_at_every_severity_and_size(kind):
    for severity, size in itertools.product(SEVERITIES, SIZES):
        check_shape_and_range(kind, severity, size)


@each_kind
@mark.parametrize("value", [0.0, 0.5, 1.0])
def test_flat_images_stay_finite(kind, value):
    for severity in SEVERITIES:
        result = corrupt(torch.full((2, 3, 16, 16), value), kind, severity)
        assert 0 <= result.min() <= result.max() <= 1


@each_kind
def test_results_are_the_same_in_every_dtype(kind):
    images = natural(3, 3, 20, 24).half()
    expected = corrupt(images.double(), kind, 3)
    for dtype, error in ((torch.float32, 2e-5), (torch.float16, 1e-3)):
        result = corrupt(images.to(dtype), kind, 3)
        assert result.dtype == dtype
        assert_close(result.double(), expected, rtol=0, atol=error)
    images = images.bfloat16()
    expected = corrupt(images.float(), kind, 3)
    assert_close(corrupt(images, kind, 3).float(), expected, rtol=0, atol=2**-8)


@each_kind
def test_seeds_rule_what_is_random(kind):
    images = natural(2, 3, 32, 32)
    first = corrupt(images, kind, 3, seed=1)
    assert_close(corrupt(images, kind, 3, seed=1), first, rtol=0, atol=0)
    same = torch.equal(corrupt(images, kind, 3, seed=2), first)
    assert same == (kind in CERTAIN)


@each_kind
def test_equal_images_are_corrupted_each_in_their_own_way(kind):
    images = natural(1, 3, 32, 32).expand(6, -1, -1, -1)
    different = corrupt(images, kind, 4).unique(dim=0)
    assert len(different) == 1 if kind in CERTAIN else len(different) > 3


@each_kind
@each_severity
def test_batches_may_be_cut_anywhere(kind, severity, monkeypatch):
    images = natural(7, 3, 28, 28)
    whole = corrupt(images, kind, severity, first=100)
    parts = [corrupt(images[:1], kind, severity, first=100), corrupt(images[1:], kind, severity, first=101)]
    assert_close(torch.cat(parts), whole, rtol=0, atol=1e-6)
    monkeypatch.setattr(corruptions, "VALUES_AT_ONCE", 3 * images[0].numel())
    assert_close(corrupt(images, kind, severity, first=100), whole, rtol=0, atol=1e-6)


@each_kind
def test_a_sample_does_not_see_the_others(kind):
    images = natural(4, 3, 28, 28)
    others = images.clone()
    others[[0, 1, 3]] = torch.rand(3, 3, 28, 28, generator=torch.Generator().manual_seed(0))
    assert_close(corrupt(others, kind, 5)[2], corrupt(images, kind, 5)[2], rtol=0, atol=1e-6)


@each_kind
def test_memory_layout_does_not_matter(kind):
    images = natural(3, 3, 30, 26)
    expected = corrupt(images, kind, 4)
    last = images.to(memory_format=torch.channels_last)
    assert_close(corrupt(last, kind, 4), expected, rtol=0, atol=1e-6)
    turned = images.transpose(2, 3).contiguous().transpose(2, 3)
    assert_close(corrupt(turned, kind, 4), expected, rtol=0, atol=1e-6)


@mark.parametrize("kind", [kind for kind in ALL if kind not in NOISES])
@each_severity
def test_grey_is_the_grey_of_the_corrupted_colours(kind, severity):
    images = natural(3, 1, 32, 32)
    colours = corrupt(images.expand(-1, 3, -1, -1), kind, severity)
    assert_close(corrupt(images, kind, severity), luma(colours), rtol=0, atol=1e-6)


def test_no_images_are_no_images():
    assert corrupt(torch.empty(0, 3, 32, 32), "snow", 1).shape == (0, 3, 32, 32)


def test_gradients_end_at_the_corruption():
    assert not corrupt(natural(1, 1, 8, 8).requires_grad_(), "contrast", 1).requires_grad


# Where the published constants do not make each severity worse in squared distance: `glass_blur` and
# `elastic_transform` trade shuffling for smoothing, `saturate` first removes colour and then adds it,
# `spatter` goes from water to mud, `frost` darkens as it brightens, `fog` and `snow` repeat a thickness.
FALLING = {
    32: {"glass_blur", "elastic_transform", "saturate", "spatter", "frost"},
    64: {"glass_blur", "elastic_transform", "saturate", "frost"},
    96: {"glass_blur", "elastic_transform", "saturate", "frost", "fog", "snow"},
}


@each_kind
@mark.parametrize(
    ("size", "batch"), [(32, 128), param(64, 48, marks=mark.slow), param(96, 24, marks=mark.slow)]
)
def test_corruption_grows_with_severity(kind, size, batch):
    images = natural(batch, 3, size, size)
    distances = [(corrupt(images, kind, s) - images).square().mean().item() for s in SEVERITIES]
    assert min(distances) > 1e-5
    if kind not in FALLING[size]:
        assert distances == sorted(distances)


def test_an_unknown_kind_is_refused_with_the_nearest_name():
    with raises(SettingError, match=r"got 'motion-blur'\. Did you mean 'motion_blur'\?"):
        corrupt(natural(1, 3, 8, 8), "motion-blur", 1)


@mark.parametrize("severity", [0, 6, 1.0, True, "3"])
def test_an_impossible_severity_is_refused(severity):
    with raises(SettingError, match=r"severity must be a whole number from 1 to 5, got "):
        corrupt(natural(1, 3, 8, 8), "fog", severity)


@mark.parametrize("name", ["seed", "first"])
def test_negative_seeds_and_numbers_are_refused(name):
    with raises(SettingError, match=rf"{name} must be at least 0, got -1"):
        corrupt(natural(1, 3, 8, 8), "fog", 1, **{name: -1})


@mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(3, 32, 32), r"of 1 or 3 channels, got shape \[3, 32, 32\]"),
        (torch.zeros(1, 4, 32, 32), r"of 1 or 3 channels, got shape \[1, 4, 32, 32\]"),
        (np.zeros((1, 3, 32, 32)), "must be a tensor .* got a ndarray"),
        (torch.zeros(1, 3, 7, 32), "at least 8 pixels high and wide, got 7 × 32"),
        (torch.zeros(1, 3, 8, 8, dtype=torch.uint8), "got torch.uint8. Divide bytes by 255"),
        (torch.full((1, 3, 8, 8), 255.0), r"must lie in \[0, 1\], got numbers from 255 to 255"),
        (torch.full((1, 3, 8, 8), -0.1), r"must lie in \[0, 1\], got numbers from -0.1 to -0.1"),
        (torch.full((1, 3, 8, 8), torch.nan), r"must lie in \[0, 1\], got numbers from nan to nan"),
    ],
)
def test_what_is_no_batch_of_images_is_refused(images, message):
    with raises(InputError, match=message):
        corrupt(images, "contrast", 1)


@fixture(scope="module")
def reference():
    """`reference(kind, image, severity)`: the package's float result, before it is cut to bytes."""
    pillow = importorskip("PIL.Image")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importorskip("imagecorruptions")
        functions = importlib.import_module("imagecorruptions.corruptions")

    def reference(kind, image, severity):
        pixels = (image.permute(1, 2, 0) * 255).round().byte().numpy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = getattr(functions, kind)(pillow.fromarray(pixels), severity)
        return torch.from_numpy(np.array(result, dtype=np.float64)).permute(2, 0, 1) / 255

    return reference


@mark.parametrize("kind", CERTAIN)
@each_severity
def test_certain_kinds_equal_the_reference(kind, severity, reference):
    image = natural(1, 3, 224, 224, seed=severity)
    result = corrupt(image, kind, severity)[0].double()
    error = 1.01 / 255 if kind == "pixelate" else 2e-6  # the reference rounds pixelated images to bytes
    assert_close(result, reference(kind, image[0], severity), rtol=0, atol=error)


@mark.parametrize("kind", ["gaussian_noise", "speckle_noise", "motion_blur", "snow", "spatter"])
@each_severity
def test_with_the_same_draws_random_kinds_equal_the_reference(kind, severity, reference, monkeypatch):
    streams = Streams([f"0/{kind}/{severity}/0"])

    def normal(loc=0.0, scale=1.0, size=()):
        drawn = streams.normal(3 if len(size) == 3 else 1, *size[:2])[0].permute(1, 2, 0).double().numpy()
        return loc + scale * drawn.reshape(size)

    monkeypatch.setattr(np.random, "normal", normal)
    monkeypatch.setattr(np.random, "uniform", lambda low, high: streams.uniform(low, high).item())
    image = natural(1, 3, 224, 224, seed=severity)
    result, expected = corrupt(image, kind, severity)[0].double(), reference(kind, image[0], severity)
    if kind == "snow":  # bytes; and a layer of 225 pixels in which the smear meets another edge
        result, expected = result[:, 32:-32, 32:-32], expected[:, 32:-32, 32:-32]
    assert_close(result, expected, rtol=0, atol=1.01 / 255 if kind == "snow" else 2e-6)


@mark.parametrize(
    ("kind", "tolerance"),
    [
        ("shot_noise", 0.01),
        ("impulse_noise", 0.03),
        ("glass_blur", 0.02),
        ("fog", 0.15),
    ],
)
@each_severity
def test_random_kinds_have_the_statistics_of_the_reference(kind, tolerance, severity, reference):
    count = 24 if kind == "fog" else 3
    np.random.seed(severity)
    images = natural(count, 3, 224, 224, seed=severity)
    result = corrupt(images, kind, severity).double()
    expected = torch.stack([reference(kind, image, severity) for image in images])
    assert result.mean().item() == approx(expected.mean().item(), rel=tolerance)
    assert result.std().item() == approx(expected.std().item(), rel=tolerance)
    assert (result - images).std().item() == approx((expected - images).std().item(), rel=tolerance)


def test_frost_has_the_statistics_of_photographed_frost(reference):
    np.random.seed(0)
    black = torch.zeros(60, 3, 112, 112)
    expected = torch.stack([reference("frost", image, 3) for image in black])
    result = corrupt(black, "frost", 3).double()
    assert result.mean().item() == approx(expected.mean().item(), rel=0.15)  # of which it knows one more
    assert result.std((2, 3)).mean().item() == approx(expected.std((2, 3)).mean().item(), rel=0.2)
