"""Costs: decisions against all that could be decided, and costs counted one by one."""

import itertools
import math

import numpy as np
import pytest

from pluribus.errors import SettingError
from pluribus.metrics.costs import (
    DEFERRED,
    Costs,
    cost_per_sample,
    decide,
    decide_by_confidence,
    expected_costs,
    parse_costs,
)

CLINIC = Costs(miss=10, alarm=1, defer=0.5)


def probabilities(samples, outcomes, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(outcomes), samples)


def test_decide_takes_the_cheapest_of_all_answers():
    for row, answer in zip(probabilities(200, 2), decide(probabilities(200, 2), CLINIC), strict=True):
        prices = {0: 10 * row[1], 1: 1 * row[0], DEFERRED: 0.5}
        assert prices[int(answer)] == pytest.approx(min(prices.values()))


def test_miss_and_alarm_move_the_threshold():
    p = np.array([[0.95, 0.05], [0.89, 0.11]])
    # Yes is answered from alarm / (miss + alarm) on, 1/11.
    assert decide(p, Costs(miss=10, alarm=1)).tolist() == [0, 1]
    assert decide(p, Costs()).tolist() == [0, 0]


def test_confidence_is_enough_where_wrong_answers_cost_the_same():
    p, costs = probabilities(300, 4), Costs(wrong=2, defer=0.7)
    found = decide_by_confidence(p.argmax(1), p.max(1), costs)
    assert found.tolist() == decide(p, costs).tolist()
    assert (found == DEFERRED).any()


def test_expected_costs_are_counted_one_by_one():
    answers = np.array([0, 1, 1, DEFERRED, 0, DEFERRED])
    target = np.array([1, 1, 0, 1, 0, 0])
    assert cost_per_sample(answers, target, CLINIC, 2).tolist() == [10, 0, 1, 0.5, 0, 0.5]
    found = expected_costs(answers, target, CLINIC, 2)
    assert found == {
        "expected_cost": 2.0,
        "cost_of_one_answer": 0.5,
        "deferred": pytest.approx(2 / 6),
        "missed": pytest.approx(1 / 6),
        "false_alarms": pytest.approx(1 / 6),
    }
    # Yes for all costs an alarm for every second sample.
    assert expected_costs(answers, target, Costs(miss=10, alarm=1), 2)["cost_of_one_answer"] == 0.5


def test_many_classes_have_one_price():
    found = expected_costs(np.array([2, 0, DEFERRED]), np.array([2, 1, 1]), Costs(wrong=3, defer=1), 3)
    assert found["expected_cost"] == pytest.approx(4 / 3)
    assert found["wrong"] == pytest.approx(1 / 3)
    with pytest.raises(SettingError, match=r"need 2 classes, got 3\. Give wrong=1"):
        CLINIC.matrix(3)


def test_the_truth_decides_best():
    target = np.array([0, 1, 1, 0])
    best = expected_costs(target, target, CLINIC, 2)["expected_cost"]
    for answers in itertools.product((0, 1, DEFERRED), repeat=4):
        assert expected_costs(np.array(answers), target, CLINIC, 2)["expected_cost"] >= best


def test_texts_are_read():
    assert parse_costs("miss=10, alarm=1,defer=0.5") == CLINIC
    assert str(CLINIC) == "miss 10, alarm 1, defer 0.5"
    assert parse_costs(" ") is None
    assert parse_costs("wrong=2").of_deferring == math.inf


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mis=3", "Did you mean 'miss'"),
        ("miss", r"costs must be written as miss=10,alarm=1,defer=0\.5, got 'miss'"),
        ("miss=-1", "costs must be written"),
        ("miss=1.2.3", "a cost must be a number"),
    ],
)
def test_wrong_texts_are_refused(text, message):
    with pytest.raises(SettingError, match=message):
        parse_costs(text)


@pytest.mark.parametrize("text", ["x" * 10_000, f"miss={'9' * 10_000}", f"{'x' * 10_000}=1"])
def test_long_texts_are_cut_in_errors(text):
    with pytest.raises(SettingError) as caught:
        parse_costs(text)
    assert len(str(caught.value)) < 400
