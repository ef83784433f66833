"""The grid of inputs and exits: what stands where, which is best, and what a cell says."""

import math

import pytest

from pluribus.report.columns import metric_column
from pluribus.report.figures.grid import case_of, draw_grid, grid_panel, read_grid
from tests.report.records import classes, only_group, sae

ACCURACY, NLL = metric_column("accuracy"), metric_column("nll")


def at(inputs, exits, seed=0, depth=3, **settings):
    """A run whose accuracy tells its place: inputs, a tenth for each exit, a little less for each seed."""
    accuracy = (inputs + exits / 10 - 2 * seed / 100) / 10
    run = sae(inputs, exits, seed, depth, metrics={"accuracy": accuracy, "nll": 1 / accuracy})
    run.method.update(settings)
    return run


def places(info):
    return {(place.inputs, place.exits): place for place in info.places}


@pytest.mark.parametrize(
    ("inputs", "exits", "depth", "case"),
    [
        (1, 1, 4, "single exit"),
        (1, 2, 4, "early exits"),
        (1, 4, 0, "early exits"),
        (2, 1, 4, "MIMO"),
        (3, 1, 0, "MIMO"),
        (2, 4, 4, "MIMMO"),
        (2, 3, 4, "in between"),
        (2, 2, 0, ""),
    ],
)
def test_cases_have_the_names_of_the_paper(inputs, exits, depth, case):
    assert case_of(inputs, exits, depth) == case


def test_a_place_is_the_mean_over_seeds_and_configurations():
    runs = [at(1, 1), at(1, 1, seed=1), at(2, 2), at(2, 2, temperature=0.5, seed=1), at(1, 3)]
    found = places(read_grid(only_group(classes(), *runs), ACCURACY))
    assert list(found) == [(1, 1), (1, 3), (2, 2)]
    assert (found[1, 1].cell.mean, found[1, 1].cell.error) == pytest.approx((0.109, 0.001))
    assert (found[2, 2].cell.mean, found[2, 2].configurations) == (pytest.approx(0.219), 2)
    assert [place.case for place in found.values()] == ["single exit", "early exits", "in between"]


def test_the_best_place_follows_the_direction_of_the_metric():
    group = only_group(at(1, 1), at(1, 2), at(2, 1))
    for column in (ACCURACY, NLL):
        assert [p.exits + 10 * p.inputs for p in read_grid(group, column).places if p.cell.best] == [21]
    worst = only_group(at(1, 1), at(1, 2))
    worst.entries[1].runs[0].metrics["nll"] = 99.0
    assert places(read_grid(worst, NLL))[1, 1].cell.best


def test_what_has_no_number_or_is_another_method_is_left_out():
    lost = at(2, 1)
    lost.metrics["accuracy"] = math.nan
    assert list(places(read_grid(only_group(classes(), at(1, 1), lost), ACCURACY))) == [(1, 1)]


def test_the_drawing_has_a_cell_for_each_place_and_gaps_between():
    drawn = draw_grid(read_grid(only_group(at(1, 1), at(1, 2), at(3, 2)), ACCURACY))
    (trace,) = drawn.data
    assert (trace.x, trace.y) == (("1", "3"), ("1", "2"))
    assert trace.z == ([0.11, None], [0.12, 0.32])
    assert trace.text == (
        ["0.110<br>single exit", ""],
        ["0.120<br>early exits", "<b>0.320</b><br>in between"],
    )
    (frame,) = drawn.layout.shapes
    assert (frame.x0, frame.x1, frame.y0, frame.y1) == (0.5, 1.5, 0.5, 1.5)
    assert not trace.reversescale
    assert draw_grid(read_grid(only_group(at(1, 1), at(1, 2)), NLL)).data[0].reversescale


def test_the_panel_offers_the_metrics_of_the_paper_and_needs_two_places():
    panel = grid_panel(only_group(sae(1, 1), sae(2, 1)))
    (titles,) = (selector.options for selector in panel.selectors)
    assert {"Accuracy", "NLL", "ECE", "Class-conditional ECE", "Macro F1", "mult-adds ×"} <= set(titles)
    assert grid_panel(only_group(classes(), sae(1, 1), sae(1, 1, seed=1))) is None
    assert grid_panel(only_group(classes())) is None
