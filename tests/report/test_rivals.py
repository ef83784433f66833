"""Rivals: verdicts and savings against the recommended configuration."""

import pytest

from pluribus.report.columns import Cell, columns_of
from pluribus.report.noise import Difference
from pluribus.report.rivals import BETTER, CHANCE, UNKNOWN, WORSE, Rival, cost_ratios, is_worse, make_rival
from tests.report.records import classes, only_group


@pytest.mark.parametrize(
    ("gap", "behind", "verdict"),
    [
        (None, False, UNKNOWN),
        (Difference(0.1, -0.1, 0.3, 1, 9), True, CHANCE),
        (Difference(0.2, 0.1, 0.3, 1, 9), True, WORSE),
        (Difference(-0.2, -0.3, -0.1, 1, 9), False, BETTER),
    ],
)
def test_verdict_follows_from_the_interval(gap, behind, verdict):
    entry = only_group(classes()).entries[0]
    assert Rival(entry, Cell(0.0, 0.0), gap, behind).verdict == verdict


def test_worse_follows_from_the_direction_of_the_metric():
    columns = {column.name: column for column in columns_of(only_group(classes()))}
    higher = Difference(0.2, 0.1, 0.3, 1, 9)
    assert is_worse(columns["nll"], higher)
    assert not is_worse(columns["accuracy"], higher)


def test_cheaper_rival_names_what_it_saves():
    group = only_group(classes(), classes("deep_ensembles"))
    single, deep = group.entries
    judge = columns_of(group)[0]
    saved = make_rival(single, deep, judge, group).cheaper
    assert saved == "1.00 × the parameters and 1.00 × the multiply-adds"
    assert make_rival(deep, single, judge, group).cheaper == ""


def test_costs_are_ratios_to_the_single_network():
    assert [name for _, name in cost_ratios(only_group(classes()))] == ["parameters", "multiply-adds"]
    assert cost_ratios(only_group(classes(cost={}))) == []
