"""Axes: which values a search may give to a setting, and how they are written."""

import pytest

from pluribus.axes import DEPTHS, Between, Ends, OneOf, listed, read_axis
from pluribus.errors import SettingError


@pytest.mark.parametrize(
    "axis",
    [
        Between(2, 8),
        Between(1, DEPTHS),
        Between(0.01, 0.5, log=True),
        OneOf((2, "a", None, True)),
        Ends(Between(0.0, 1.0), OneOf((0.5, 1.0))),
    ],
)
def test_axis_is_read_as_it_was_written(axis):
    assert read_axis("members", axis.to_json()) == axis


def test_whole_numbers_and_choices_are_listed():
    assert listed(Between(2, 4)) == [2, 3, 4]
    assert listed(OneOf(("a", "b"))) == ["a", "b"]
    assert not Between(0.0, 1.0).is_finite


def test_ends_make_a_pair():
    axis = Ends(Between(0.0, 1.0), Between(0.5, 1.0))
    assert list(axis.parts) == [".start", ".end"]
    assert axis.value([0.1, 0.9]) == (0.1, 0.9)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"low": 3, "high": 1}, "at least 3"),
        ({"low": 0, "high": 1, "log": True}, "above 0"),
        ({"low": "a", "high": 1}, "a number"),
        ({"low": 0}, "a dict of low, high"),
        ([], "at least one"),
        ([[1]], "numbers, words"),
        (3, "a list of values"),
        ({"start": {"start": [1], "end": [1]}, "end": [1]}, "numbers"),
    ],
)
def test_impossible_axes_are_refused_with_their_name(value, reason):
    with pytest.raises(SettingError, match="rate") as error:
        read_axis("rate", value)
    assert reason in str(error.value)
