"""Price list: the best within each budget, by multiply-adds and by time."""

import math

import pytest

from pluribus.report.price_list import BUDGETS, make_price_list
from tests.report.records import classes, numbers, only_group


def costly(kind, skill, multiply_adds, time, seed=0):
    costs = {"multiply_adds_ratio": multiply_adds, "latency_ratio": time, "parameters_ratio": 1.0}
    return classes(kind, seed, skill, cost=costs)


def offers(*runs, metric=None):
    return {offer.budget: offer for offer in make_price_list(only_group(*runs), metric).offers}


def test_more_cost_buys_the_better_configuration():
    found = offers(
        costly("single", 1.0, 1.0, 1.0),
        costly("mc_dropout", 2.0, 1.4, 1.5),
        costly("deep_ensembles", 4.0, 4.0, 4.0),
    )
    assert [found[budget].entry.label for budget in BUDGETS] == [
        "single",
        "mc_dropout",
        "deep_ensembles",
        "deep_ensembles",
    ]
    assert found[1.0].verdict == "it is the single network"
    assert found[4.0].verdict == "better"
    assert found[4.0].gap.value < 0
    assert [offer.title for offer in found.values()] == ["1 ×", "1.5 ×", "4 ×", "any"]


def test_a_configuration_that_takes_long_does_not_keep_the_budget():
    found = offers(costly("single", 1.0, 1.0, 1.0), costly("packed_ensembles", 4.0, 1.2, 3.97))
    assert found[1.5].entry.label == "single"
    assert found[4.0].entry.label == "packed_ensembles"
    assert (found[4.0].multiply_adds, found[4.0].time) == (1.2, 3.97)


def test_a_little_more_time_is_allowed_but_not_more_multiply_adds():
    found = offers(costly("single", 1.0, 1.0, 1.0), costly("mc_dropout", 4.0, 1.0, 1.09))
    assert found[1.0].entry.label == "mc_dropout"
    found = offers(costly("single", 1.0, 1.0, 1.0), costly("mc_dropout", 4.0, 1.09, 1.0))
    assert found[1.0].entry.label == "single"


def test_time_that_was_not_measured_does_not_count():
    run = classes("mc_dropout", skill=4.0, cost={"multiply_adds_ratio": 1.0})
    found = offers(costly("single", 1.0, 1.0, 1.0), run)
    assert found[1.0].entry.label == "mc_dropout"
    assert math.isnan(found[1.0].time)


def test_the_metric_decides():
    runs = [costly("single", 1.0, 1.0, 1.0), costly("mc_dropout", 4.0, 1.0, 1.0)]
    assert make_price_list(only_group(*runs), "accuracy").judge.name == "accuracy"
    assert make_price_list(only_group(*runs), "accuracy").second is None
    assert make_price_list(only_group(*runs)).second.name == "accuracy"
    assert make_price_list(only_group(numbers())).second.name == "rmse"


@pytest.mark.parametrize("cost", [{}, {"multiply_adds": 5.0}])
def test_nothing_is_offered_where_costs_are_not_known(cost):
    assert make_price_list(only_group(classes("deep_ensembles", cost=cost))) is None
