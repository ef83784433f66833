"""Pareto: who is on the front, and what a point says."""

import html
import math

import pytest

from pluribus.report.columns import columns_of
from pluribus.report.figures.pareto import WIDTH, draw_pareto, pareto_panel, read_pareto
from tests.report.records import classes, only_group


def column(group, name):
    return next(one for one in columns_of(group) if one.name == name)


def group():
    return only_group(
        classes(skill=0.8),
        classes("batch_ensemble", skill=0.5),
        classes("deep_ensembles", skill=1.6),
        classes("mimo", skill=1.2),
    )


def read(quality, cost="multiply_adds"):
    found = group()
    return read_pareto(found, column(found, quality), column(found, cost))


def test_the_front_is_what_nothing_beats_in_both():
    assert [point.label for point in read("nll").front] == ["single", "mimo", "deep_ensembles"]
    assert [point.label for point in read("accuracy").front] == ["single", "mimo", "deep_ensembles"]


def test_equals_are_both_on_the_front():
    found = only_group(classes(), classes("mc_dropout"))
    found.entries[1].runs[0].metrics["nll"] = found.entries[0].runs[0].metrics["nll"]
    info = read_pareto(found, column(found, "nll"), column(found, "parameters"))
    assert [point.on_front for point in info.points] == [True, True]


def test_what_has_no_number_is_left_out():
    found = group()
    found.entries[0].runs[0].metrics["nll"] = math.nan
    info = read_pareto(found, column(found, "nll"), column(found, "parameters"))
    assert "single" not in [point.label for point in info.points]
    assert [point.position for point in info.points] == [1, 2, 3]


def test_a_point_tells_its_settings_and_all_its_numbers():
    run = classes("deep_ensembles")
    run.method["members"] = 7
    found = only_group(run)
    (point,) = read_pareto(found, column(found, "nll"), column(found, "parameters")).points
    assert "deep_ensembles(members=7)<br>members: 7<br>Accuracy: " in point.details
    assert "params ×: 4.00" in point.details


def test_what_a_point_tells_is_text_in_short_lines():
    run = classes("deep_ensembles")
    run.method["note"] = "<b>%{x}" + " long" * 30
    found = only_group(run)
    info = read_pareto(found, column(found, "nll"), column(found, "parameters"))
    details = info.points[0].details
    assert "&lt;b&gt;%{x} long" in details
    assert max(len(html.unescape(line)) for line in details.split("<br>")) <= WIDTH
    assert draw_pareto(info).data[1].text == (details,)


def test_the_drawing_shows_every_point_and_the_front():
    info = read("nll")
    drawn = draw_pareto(info)
    assert [trace.name for trace in drawn.data] == ["front", *(point.label for point in info.points)]
    assert drawn.data[0].x == (1.0, 2.0, 4.0)
    assert drawn.layout.xaxis.title.text == "mult-adds ×"
    assert drawn.layout.yaxis.title.text == "NLL (lower is better)"


def test_every_quality_meets_every_cost():
    panel = pareto_panel(group())
    qualities, costs = (selector.options for selector in panel.selectors)
    assert (qualities[0], costs[0]) == ("NLL", "mult-adds ×")
    assert set(panel.figures) == {(quality, cost) for quality in qualities for cost in costs}
    assert pareto_panel(only_group(classes(cost={}))) is None


def test_costs_have_a_logarithmic_axis_with_multiples():
    axis = draw_pareto(read("nll")).layout.xaxis
    assert axis.type == "log"
    assert axis.ticktext == ("1", "1.5", "2", "3", "4")
    assert 10 ** axis.range[0] < 1
    assert 10 ** axis.range[1] > 4
    found = only_group(classes(cost={"parameters": 0.0}))
    info = read_pareto(found, column(found, "nll"), column(found, "parameters"))
    assert draw_pareto(info).layout.xaxis.type is None


def test_an_outlier_is_named_at_the_edge():
    skills = {"single": 2.0, "mimo": 2.1, "mimmo": 2.2, "batch_ensemble": 2.3, "swag": -3.0}
    found = only_group(*(classes(kind, skill=skill) for kind, skill in skills.items()))
    drawn = draw_pareto(read_pareto(found, column(found, "nll"), column(found, "multiply_adds")))
    _, high = drawn.layout.yaxis.range
    assert high < 2
    (note,) = drawn.layout.annotations
    assert note.text.startswith("↑ swag ")
    assert note.y == pytest.approx(high, rel=1e-3)
    # The point keeps its place, so that the numbers of the figure are true.
    assert drawn.data[-1].y[0] > high


def test_the_best_is_inside_the_figure_however_far_it_is():
    skills = {"single": 0.5, "mimo": 0.51, "mimmo": 0.52, "batch_ensemble": 0.53, "swag": 6.0}
    found = only_group(*(classes(kind, skill=skill) for kind, skill in skills.items()))
    for name in ("nll", "accuracy"):
        drawn = draw_pareto(read_pareto(found, column(found, name), column(found, "multiply_adds")))
        assert not drawn.layout.annotations
        span = drawn.layout.yaxis.range
        assert span is None or span[0] < drawn.data[-1].y[0] < span[1]
