"""Objectives: names, directions, and where their values come from."""

import math

import pytest

from pluribus.errors import SettingError
from pluribus.search.objectives import all_objectives, parse_objectives


def test_objectives_know_their_direction():
    nll, accuracy, cost = parse_objectives("nll, accuracy,multiply_adds")
    assert [one.direction for one in (nll, accuracy, cost)] == ["minimize", "maximize", "minimize"]
    assert accuracy.loss(0.9) == -0.9


def test_objectives_read_raw_calibrated_and_cost_values():
    raw, calibrated, time = parse_objectives(["ece", "scaled_ece", "latency"])
    values = ({"ece": 0.1}, {"scaled_ece": 0.05}, {"latency_ratio": 2.0})
    assert [one.read(*values) for one in (raw, calibrated, time)] == [0.1, 0.05, 2.0]
    assert math.isnan(raw.read({}, {}, {}))
    assert calibrated.title.endswith("calibrated")


def test_every_objective_has_a_title():
    assert all(one.title for one in all_objectives().values())


@pytest.mark.parametrize(
    ("text", "reason"),
    [("nll,eec", "ece"), ("nll,nll", "once"), ("parameters", "a quality"), ("", "a quality")],
)
def test_wrong_objectives_are_refused(text, reason):
    with pytest.raises(SettingError, match=reason):
        parse_objectives(text)
