"""The front: nothing on it is beaten in both."""

import math

import pytest

from pluribus.report.columns import Cell, metric_column
from pluribus.report.figures.front import undominated


def cell(mean):
    return Cell(mean, math.nan)


@pytest.mark.parametrize(("metric", "front"), [("nll", {"cheap", "good"}), ("accuracy", {"cheap", "bad"})])
def test_nothing_on_the_front_is_beaten_in_both(metric, front):
    cells = {
        "cheap": (cell(0.5), cell(1.0)),
        "good": (cell(0.2), cell(4.0)),
        "bad": (cell(0.6), cell(2.0)),
    }
    found = {name for name in cells if undominated(name, cells, metric_column(metric))}
    assert found == front


def test_equals_are_both_on_the_front():
    cells = {"a": (cell(0.5), cell(1.0)), "b": (cell(0.5), cell(1.0))}
    assert all(undominated(name, cells, metric_column("nll")) for name in cells)
