"""Altered samples: seeded, of the same shape, and strange in the way their name says."""

import pytest
import torch
from torch.testing import assert_close

from pluribus.calibration.altered import altered, cutmix, permuted, stretched


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


CASES = {
    "square": (normal(6, 3, 8, 8), ["rotated", "inverted", "cutmix", "swapped"]),
    "wide": (normal(6, 1, 8, 12), ["rotated", "inverted", "cutmix", "swapped"]),
    "table": (normal(6, 4), ["permuted", "stretched"]),
    "column": (normal(6, 1), ["stretched"]),
    "sequence": (normal(6, 5, 2), ["swapped", "mixed"]),
    "tokens": (torch.arange(30).reshape(6, 5), ["swapped", "mixed"]),
    "numbers": (torch.arange(6), []),
}


@pytest.mark.parametrize("name", CASES)
def test_samples_are_altered_the_same_way_twice_and_keep_their_shape(name):
    x, names = CASES[name]
    before = x.clone()
    found = dict(altered(x))
    assert list(found) == names
    for change, samples in found.items():
        assert samples.shape[1:] == x.shape[1:]
        assert len(samples) % len(x) == 0
        assert samples.dtype == x.dtype
        assert not torch.equal(samples[: len(x)], x), change
    assert_close(found, dict(altered(x)))
    assert torch.equal(x, before)


def test_square_images_are_turned_three_times_and_others_once():
    assert len(dict(altered(CASES["square"][0]))["rotated"]) == 18
    assert len(dict(altered(CASES["wide"][0]))["rotated"]) == 6


def test_inverted_images_keep_the_range_of_each_channel():
    x, _ = CASES["square"]
    inverted = dict(altered(x))["inverted"]
    assert_close(inverted.amin((0, 2, 3)), x.amin((0, 2, 3)))
    assert torch.equal(inverted[:, 0].flatten().argsort(), x[:, 0].flatten().argsort(descending=True))
    assert_close(inverted.amax((0, 2, 3)), x.amax((0, 2, 3)))


def test_cutmix_takes_half_of_each_image_from_one_other():
    x = torch.arange(5.0).reshape(5, 1, 1, 1).expand(5, 1, 20, 20)
    mixed = cutmix(x, torch.Generator().manual_seed(0))
    for own, image in enumerate(mixed):
        values, counts = image.unique(return_counts=True)
        assert len(values) == 2
        assert own in values
        assert counts[values != own].item() == 14 * 14


def test_permuted_tables_keep_each_column():
    x = normal(50, 3)
    found = permuted(x, torch.Generator().manual_seed(0))
    assert_close(found.sort(0).values, x.sort(0).values)


def test_stretched_tables_lie_three_times_as_far_from_the_mean():
    x = normal(50, 3)
    found = stretched(x, torch.Generator().manual_seed(0))
    assert_close(found.mean(0), x.mean(0))
    assert_close(found.std(0), 3 * x.std(0))
