"""Schedules: end points, and never above one nor below zero."""

import pytest

from pluribus.training.schedules import SCHEDULES


@pytest.mark.parametrize(
    ("name", "start", "middle", "end"),
    [("constant", 1, 1, 1), ("linear", 1, 0.5, 0), ("cosine", 1, 0.5, 0), ("steps", 1, 0.1, 0.01)],
)
def test_schedules_have_their_end_points(name, start, middle, end):
    values = [SCHEDULES[name](progress, (0.5, 0.75), 0.1) for progress in (0.0, 0.5, 1.0)]
    assert values == pytest.approx([start, middle, end])


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_fall_and_stay_in_range(name):
    values = [SCHEDULES[name](step / 100, (0.5, 0.75), 0.1) for step in range(101)]
    assert values == sorted(values, reverse=True)
    assert 0 <= values[-1] <= values[0] == 1
