"""Selective prediction: the error at full coverage is the error, and falls where confidence is good."""

import numpy as np
import pytest

from pluribus.report.figures.selective import COVERAGES, draw_selections, read_selection, selective_panel
from tests.report.records import classes, numbers, only_group


def test_at_full_coverage_the_error_is_that_of_all():
    runs = [classes(seed=seed, skill=1.0) for seed in range(2)]
    found = read_selection(0, only_group(*runs).entries[0])
    assert found.errors[-1] == pytest.approx(1 - np.mean([run.metrics["accuracy"] for run in runs]))
    assert found.errors[9] < found.errors[-1]


def test_numbers_are_selected_by_their_deviation():
    run = numbers(noise=2.0)
    run.outcomes.columns["std"][:] = run.outcomes.columns["absolute_error"]
    found = read_selection(0, only_group(run).entries[0])
    assert found.of_numbers
    assert found.errors[-1] == pytest.approx(run.metrics["rmse"], rel=1e-5)
    assert list(found.errors) == sorted(found.errors)


def test_the_drawing_has_a_line_for_each():
    group = only_group(classes(), classes("mc_dropout"))
    found = tuple(read_selection(i, entry) for i, entry in enumerate(group.entries))
    drawn = draw_selections(found)
    assert [trace.name for trace in drawn.data] == ["single", "mc_dropout"]
    assert drawn.data[0].x == COVERAGES
    axis = drawn.layout.xaxis
    assert (COVERAGES[-1] - axis.tick0) / axis.dtick == pytest.approx(5)  # a tick where the curves end
    assert axis.range[0] <= COVERAGES[0] < COVERAGES[-1] < axis.range[1]
    assert selective_panel(group).figures[()].data[0].y == drawn.data[0].y
    assert selective_panel(only_group(classes(outcomes=None))) is None
