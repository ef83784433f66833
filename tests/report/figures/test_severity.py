"""Severity: from clean data to the worst, over kinds or for one."""

import math

import pytest

from pluribus.report.figures.severity import draw_declines, read_declines, severity_panel
from tests.report.records import classes, numbers, only_group


def test_severity_zero_is_the_clean_metric_and_the_rest_means_over_kinds():
    run = classes(
        metrics={"accuracy": 0.9}, shifted={"fog/1": {"accuracy": 0.8}, "snow/1": {"accuracy": 0.4}}
    )
    (decline,) = read_declines(only_group(run), "accuracy")
    assert decline.severities == (0, 1)
    assert [cell.mean for cell in decline.cells] == pytest.approx([0.9, 0.6])
    (fog,) = read_declines(only_group(run), "accuracy", "fog")
    assert [cell.mean for cell in fog.cells] == pytest.approx([0.9, 0.8])


def test_errors_are_over_seeds():
    runs = [classes(seed=s, shifted={"fog/3": {"accuracy": a}}) for s, a in enumerate((0.4, 0.6))]
    (decline,) = read_declines(only_group(*runs), "accuracy")
    assert decline.severities == (0, 3)
    assert (decline.cells[1].mean, decline.cells[1].error) == pytest.approx((0.5, 0.1))


def test_configurations_without_the_metric_are_left_out():
    group = only_group(classes(), classes("mc_dropout", shifted={}), classes("mimo", shifted={"fog/1": {}}))
    assert [one.label for one in read_declines(group, "accuracy")] == ["single"]


def test_the_drawing_has_a_line_for_each():
    group = only_group(classes(), classes("mc_dropout"))
    drawn = draw_declines(read_declines(group, "ece"), "ece")
    assert [trace.name for trace in drawn.data] == ["single", "mc_dropout"]
    assert drawn.data[0].x == (0, 1, 2, 3, 4, 5)
    assert not any(math.isnan(error) for error in drawn.data[0].error_y.array)
    assert drawn.layout.yaxis.title.text == "ECE (lower is better)"


def test_the_panel_offers_metrics_and_kinds():
    panel = severity_panel(only_group(classes()))
    titles, kinds = (selector.options for selector in panel.selectors)
    assert titles[0] == "Accuracy"
    assert kinds == ("all kinds", "fog", "gaussian noise")
    assert severity_panel(only_group(numbers())) is None
