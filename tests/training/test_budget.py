"""Budgets: steps, epochs, and what a default is."""

import math

import pytest

from pluribus.training.budget import Budget, is_scored_early, make_budget


@pytest.mark.parametrize(
    ("samples", "epochs", "steps", "expected"),
    [
        (300, None, None, Budget(1000, 5)),  # 200 epochs
        (60_000, None, None, Budget(30 * 938, 938)),
        (300, 7, None, Budget(35, 5)),
        (300, None, 12, Budget(12, 5)),
    ],
)
def test_budgets_are_steps_of_epochs(samples, epochs, steps, expected):
    assert make_budget(samples, 64, epochs, steps) == expected


def test_the_last_epoch_may_be_a_part():
    budget = Budget(12, 5)
    assert budget.epochs == 3
    assert [budget.done(epoch) for epoch in range(4)] == [0, 5, 10, 12]


@pytest.mark.parametrize(("epoch", "late"), [(0, False), (95, False), (96, True), (100, True)])
def test_the_last_twentieth_is_late(epoch, late):
    assert Budget(500, 5).is_late(epoch) is late


@pytest.mark.parametrize(
    ("scores", "early"),
    [
        ([1.0, 2.0, 3.0], True),
        ([math.nan, 1.0, 2.0, 3.0], True),
        ([math.nan] * 3 + [1.0], False),
        ([], False),
    ],
)
def test_scores_are_early_if_one_lies_in_the_first_half(scores, early):
    assert is_scored_early(scores) == early
