"""Rates at a threshold: chosen on validation data, counted on test data."""

from pluribus.comparison.at_threshold import at_threshold
from pluribus.metrics.threshold import Threshold
from tests.metrics.examples import answers, classes, numbers


def test_the_threshold_is_that_of_validation_data():
    validation, test = classes(100, 2), classes(150, 2, seed=5)
    rates, intervals = at_threshold(*validation, *test)
    found = Threshold.fit(*validation)
    assert rates["threshold"] == found.value
    assert rates["threshold_sensitivity"] == found.rates(*test)["sensitivity"]
    assert intervals.keys() == rates.keys() - {"threshold"}


def test_only_two_outcomes_have_one():
    assert at_threshold(*classes(20, 3), *classes(20, 3)) == ({}, {})
    assert at_threshold(*numbers(20), *numbers(20)) == ({}, {})
    assert at_threshold(*answers(50), *answers(50, seed=1))[0]
