"""Shifted sets: corruption of raw images, the same scaling, the same numbers each time."""

import pytest
import torch
from torch.testing import assert_close

from pluribus.data.corruptions import EXTRA_KINDS, KINDS, corrupt
from pluribus.data.scaling import Scaling
from pluribus.data.shifted import Shifted

IMAGES = torch.randint(0, 256, (5, 3, 12, 12), generator=torch.Generator().manual_seed(0)).byte()
SCALING = Scaling(torch.full((3, 1, 1), 0.4), torch.full((3, 1, 1), 0.2))
SHIFTED = Shifted(IMAGES, torch.arange(5), SCALING)


def test_keys_are_kinds_by_severities():
    keys = list(SHIFTED)
    assert keys[:6] == [("gaussian_noise", s) for s in (1, 2, 3, 4, 5)] + [("shot_noise", 1)]
    assert len(SHIFTED) == len(keys) == 95
    assert {kind for kind, _ in keys} == set(KINDS + EXTRA_KINDS)


@pytest.mark.parametrize("images", [IMAGES, IMAGES / 255])
def test_images_are_corrupted_first_and_scaled_after(images):
    split = Shifted(images, torch.arange(5), SCALING)["fog", 3]
    assert_close(split.x, (corrupt(IMAGES / 255, "fog", 3) - 0.4) / 0.2)
    assert_close(split.y, torch.arange(5))


def test_a_set_is_the_same_each_time():
    for key in (("gaussian_noise", 2), ("glass_blur", 5)):
        assert_close(SHIFTED[key].x, SHIFTED[key].x, rtol=0, atol=0)
        assert not torch.equal(SHIFTED[key].x, Shifted(IMAGES, SHIFTED.y, SCALING, seed=1)[key].x)


@pytest.mark.parametrize("key", [("fogg", 1), ("fog", 6), "fog"])
def test_other_keys_are_not_there(key):
    assert key not in SHIFTED
    assert SHIFTED.get(key) is None
    with pytest.raises(KeyError):
        SHIFTED[key]


def test_kinds_may_be_chosen():
    assert list(Shifted(IMAGES, SHIFTED.y, SCALING, kinds=("snow",))) == [("snow", s) for s in range(1, 6)]
