"""Trust: what confidence and intervals are worth."""

import numpy as np

from pluribus.report.trust import trust
from tests.report.records import classes, numbers, only_group


def entry(run):
    return only_group(run).entries[0]


def test_confidence_is_compared_with_accuracy():
    run = classes()
    columns = run.outcomes.columns
    columns["confidence"][:] = 0.75
    columns["label"][:] = columns["target"]
    columns["label"][:100] = -1
    (sentence,) = trust(entry(run))
    assert "75.0 % sure on average and right in 50.0 % of cases: too sure by 25.0 points" in sentence


def test_intervals_are_compared_with_targets():
    run = numbers()
    columns = run.outcomes.columns
    columns["low"][:], columns["high"][:] = -np.inf, np.inf
    columns["high"][:50] = -np.inf
    (sentence,) = trust(entry(run))
    assert "hold 75.0 % of the test targets" in sentence


def test_nothing_is_known_without_outcomes():
    assert list(trust(entry(classes(outcomes=None)))) == []
