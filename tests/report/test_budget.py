"""Budgets: what a text means, what a configuration costs by it, and what is refused."""

import math

import pytest
from pytest import raises

from pluribus.errors import SettingError
from pluribus.report.budget import Limit, parse_budget
from tests.report.records import classes, only_group


def test_limits_are_relative_or_plain_numbers():
    assert parse_budget("multiply_adds<=1.5x, parameters <= 2M,latency<=3×") == (
        Limit("multiply_adds", 1.5, True),
        Limit("parameters", 2e6, False),
        Limit("latency", 3.0, True),
    )
    assert parse_budget("weight_bytes<=1e3k") == (Limit("weight_bytes", 1e6, False),)
    assert parse_budget("  ") == ()
    assert str(parse_budget("parameters<=2.5M")[0]) == "parameters ≤ 2,500,000"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("multiply_ads<=2x", "got 'multiply_ads'.*multiply_adds"),
        ("parameters>=2", "must be written as multiply_adds<=1.5x"),
        ("parameters<=1.2.3", "must be a number, got '1.2.3'"),
        ("multiply_adds<1x", r"written with <=, got 'multiply_adds<1x'. Write multiply_adds<=1x\."),
        ("parameters < 2M", r"Write parameters<=2M\."),
        ("latency<=2", "must be a multiple of the single network's"),
    ],
)
def test_what_is_no_limit_is_refused(text, message):
    with raises(SettingError, match=message):
        parse_budget(text)


def test_ratios_come_from_the_runs_or_from_the_single_network():
    group = only_group(classes(), classes("deep_ensembles"))
    assert Limit("parameters", 1, True).cost(group.entries[1], group) == 4.0
    assert Limit("parameters", 1, False).cost(group.entries[1], group) == 4000.0
    bare = {"weight_bytes": 10}, {"weight_bytes": 30}
    group = only_group(classes(cost=bare[0]), classes("deep_ensembles", cost=bare[1]))
    assert Limit("weight_bytes", 1, True).cost(group.entries[1], group) == 3.0
    assert math.isnan(Limit("parameters", 1, True).cost(group.entries[1], group))
