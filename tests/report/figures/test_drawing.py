"""Drawing: configurations can be told apart, and numbers are short."""

import math

import pytest

from pluribus.report.figures import make_panels
from pluribus.report.figures.drawing import (
    COLOURS,
    bars,
    figure,
    look,
    robust_range,
    robust_span,
    rounded,
)
from tests.report.records import classes, failed, numbers, only_group


def test_forty_configurations_look_different():
    looks = {(str(look(i)["line"]), look(i)["marker"]["symbol"]) for i in range(4 * len(COLOURS))}
    assert len(looks) == 4 * len(COLOURS)


def test_numbers_are_rounded_to_four_digits():
    assert rounded([0.123456, 123456.0, 1e-9]) == [0.1235, 123500.0, 1e-9]
    assert rounded([math.nan, math.inf]) == [None, None]
    assert bars([0.5, math.nan])["array"] == [0.5, 0.0]


def test_axes_keep_their_titles_when_they_get_settings():
    drawn = figure([], "across", "up", axes={"xaxis": {"range": [0, 1]}})
    assert (drawn.layout.xaxis.title.text, drawn.layout.xaxis.range) == ("across", (0, 1))


def test_a_group_has_the_panels_that_it_has_data_for():
    names = [panel.name for panel in make_panels(only_group(classes(), classes("mc_dropout")))]
    assert names == ["pareto", "reliability", "selective", "separation", "severity"]
    names = [panel.name for panel in make_panels(only_group(numbers()))]
    assert names == ["pareto", "reliability", "selective", "intervals"]
    assert make_panels(only_group(failed())) == []


def test_what_is_first_shown_is_the_first_of_every_choice():
    for panel in make_panels(only_group(classes(), classes("mc_dropout"))):
        first = tuple(selector.options[0] for selector in panel.selectors)
        assert panel.first is panel.figures[first]


def test_an_outlier_does_not_flatten_the_range():
    assert robust_range([0.2, 0.25, 0.3, 0.35, 5.0]) == pytest.approx((0.188, 0.362))
    assert robust_range([-5.0, 0.2, 0.25, 0.3, 0.35]) == pytest.approx((0.188, 0.362))
    assert robust_range([0.2, 0.25, 0.3, 0.35, 0.5]) is None
    assert robust_range([1.0, 1.0, 1.0, 1.0, 9.0]) is not None


def test_a_range_holds_the_values_that_must_be_seen():
    values = [-5.0, 0.2, 0.25, 0.3, 0.35, 9.0]
    low, high = robust_range(values, kept=[-5.0])
    assert low < -5
    assert high < 1


def test_few_values_and_gaps_have_no_outliers():
    assert robust_range([0.1, 0.2, 50.0]) is None
    assert robust_range([0.1, 0.2, math.nan, 50.0]) is None


def test_a_curve_far_beyond_all_others_is_cut_and_all_others_are_whole():
    curves = [[0.0, 0.0, 0.0, high] for high in (0.1, 0.12, 0.14, 0.16)]
    assert robust_span(curves) is None
    low, high = robust_span([*curves, [0.0, 0.5, 3.0]])
    assert low == 0
    assert 0.16 < high < 0.2
