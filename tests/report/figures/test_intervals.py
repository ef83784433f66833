"""Intervals: by rising prediction, the truth marked where it lies."""

import pytest

from pluribus.report.figures.intervals import SHOWN, draw_intervals, intervals_panel, read_intervals
from tests.report.records import classes, numbers, only_group


def test_some_targets_are_shown_and_all_are_counted():
    run = numbers(samples=500)
    info = read_intervals(only_group(run).entries[0])
    assert len(info.mean) == SHOWN
    assert list(info.mean) == sorted(info.mean)
    assert info.coverage == pytest.approx(run.metrics["coverage_95"])
    assert all(low < mean < high for low, mean, high in zip(info.low, info.mean, info.high, strict=True))


def test_the_truth_is_marked_inside_or_outside():
    info = read_intervals(only_group(numbers(noise=1.0)).entries[0])
    drawn = draw_intervals(info)
    inside, outside = drawn.data[2], drawn.data[3]
    assert len(inside.x) + len(outside.x) == len(info.target)
    for place, y in zip(outside.x, outside.y, strict=True):
        assert not info.low[place - 1] <= info.target[place - 1] <= info.high[place - 1]
        assert y == pytest.approx(info.target[place - 1], rel=1e-3)
    assert drawn.layout.title.text == f"{info.coverage:.1%} of all targets lie inside"


def test_intervals_far_from_zero_keep_their_ends():
    run = numbers()
    for name in ("mean", "low", "high", "target"):
        run.outcomes.columns[name] += 1995
    info = read_intervals(only_group(run).entries[0])
    drawn = draw_intervals(info)
    assert drawn.data[0].base == pytest.approx(info.low, abs=1e-3)
    assert drawn.data[1].y == pytest.approx(info.mean, abs=1e-3)


def test_only_predictions_with_a_density_have_a_panel():
    panel = intervals_panel(only_group(numbers(), numbers("mc_dropout")))
    assert set(panel.figures) == {("single",), ("mc_dropout",)}
    assert intervals_panel(only_group(classes())) is None
