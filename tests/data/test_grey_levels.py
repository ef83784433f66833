"""Levels of grey: what is white, by the type of a picture or by the user."""

from types import SimpleNamespace

import numpy as np
import pytest

from pluribus.data.grey_levels import Levels, check_levels, choose_levels, kind_of
from pluribus.errors import InputError, SettingError


@pytest.mark.parametrize(
    ("mode", "form", "tags", "kind"),
    [
        ("L", "PNG", {}, "8-bit"),
        ("RGB", "JPEG", {}, "8-bit"),
        ("I;16", "PNG", {}, "16-bit"),
        ("I", "PNG", {}, "16-bit"),
        ("I", "PPM", {}, "16-bit"),
        ("I;16B", "TIFF", {258: (16,), 262: 1}, "16-bit"),
        ("I;16", "TIFF", {258: (12,), 262: 1}, "12-bit"),
        ("I", "TIFF", {258: (32,)}, "32-bit integer"),
        ("F", "TIFF", {258: (32,)}, "float"),
    ],
)
def test_kind_follows_from_mode_and_format(mode, form, tags, kind):
    assert kind_of(SimpleNamespace(mode=mode, format=form, tag_v2=tags)) == kind


def test_inverted_pictures_are_refused():
    with pytest.raises(InputError, match="must store black as 0, got white as 0"):
        kind_of(SimpleNamespace(mode="I;16", format="TIFF", tag_v2={262: 0}))


def test_ranges_of_kinds():
    assert choose_levels("8-bit", None) is None
    assert choose_levels("16-bit", None) == Levels("16-bit", 0, 65535)
    assert choose_levels("12-bit", None) == Levels("12-bit", 0, 4095)
    assert choose_levels("float", None) == Levels("float", 0, 1)
    assert choose_levels("32-bit integer", (0, 4095)) == Levels("32-bit integer", 0, 4095)
    with pytest.raises(InputError, match=r"got 32-bit integers, which do not tell. Set the option levels"):
        choose_levels("32-bit integer", None)


def test_scale_gives_shares_and_refuses_what_lies_outside():
    levels = Levels("float", -1000, 3000)
    np.testing.assert_array_equal(levels.scale(np.array([-1000.0, 0, 3000]), "it"), np.float32([0, 0.25, 1]))
    for odd in (-1001.0, 3001.0, np.nan, np.inf):
        with pytest.raises(InputError, match="it must hold values from -1000 to 3000, got"):
            levels.scale(np.array([0, odd]), "it")


@pytest.mark.parametrize(
    "levels", [5, (1,), (1, 1), (2, 1), (0, float("inf")), ("a", "b"), (0, 1, 2), (True, 2)]
)
def test_impossible_levels_are_refused(levels):
    with pytest.raises(SettingError, match="levels must be two finite numbers"):
        check_levels(levels)
