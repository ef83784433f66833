"""Importance of settings: planted effects are found, and chance is not."""

import random

import pytest

from pluribus.search.importance import correlation_ratio, importances


def test_setting_that_decides_is_first():
    generator = random.Random(0)
    drawn = [{"a": generator.choice("xyz"), "b": generator.random(), "c": 1} for _ in range(60)]
    losses = [{"x": 0.0, "y": 1.0, "z": 2.0}[one["a"]] + 0.1 * one["b"] for one in drawn]
    found = importances(drawn, losses)
    assert next(iter(found)) == "a"
    assert found["a"] > 0.95
    assert found["b"] < 0.1
    assert found["c"] == 0


def test_numbers_are_grouped_by_quarters():
    drawn = [{"rate": i / 40} for i in range(40)]
    assert importances(drawn, [one["rate"] ** 2 for one in drawn])["rate"] > 0.7


def test_setting_of_few_trials_is_left_out():
    drawn = [{"a": i} for i in range(5)] + [{"b": i} for i in range(20)]
    assert "a" not in importances(drawn, list(range(25)))


@pytest.mark.parametrize(
    ("groups", "losses"), [([0, 0, 0], [1, 2, 3]), ([0, 1, 2], [1, 2, 3]), ([0, 1], [1, 1])]
)
def test_nothing_is_explained_without_freedom_or_differences(groups, losses):
    assert correlation_ratio(groups, losses) == 0
