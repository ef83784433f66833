"""Wording: lists, shares and differences."""

import math

import pytest

from pluribus.report.columns import Column
from pluribus.report.noise import Difference
from pluribus.report.wording import listed, percent, with_interval


@pytest.mark.parametrize(("parts", "text"), [([], ""), ([1], "1"), ("ab", "a and b"), ("abc", "a, b and c")])
def test_parts_are_listed(parts, text):
    assert listed(parts) == text


def test_share_has_one_decimal():
    assert percent(0.5) == "50.0 %"


def test_difference_is_counted_in_the_direction_of_its_word():
    column = Column("nll", "NLL", lambda run: math.nan, True, "", digits=2)
    lower = Difference(-0.5, -0.75, 0.25, 3, 100)
    assert with_interval(lower, column) == "0.50 lower (95 % interval −0.25 to 0.75)"
    higher = Difference(0.5, 0.25, 0.75, 3, 100)
    assert with_interval(higher, column) == "0.50 higher (95 % interval 0.25 to 0.75)"
