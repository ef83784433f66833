"""Depth preference: what the history says, epoch by epoch, over seeds, inputs and configurations."""

import pytest

from pluribus.report.figures.courses import read_courses, read_together
from pluribus.report.figures.preference import draw_courses, preference_panel, whole_step
from tests.report.records import classes, only_group, sae


def run(*preferences, seed=0, inputs=1):
    """A run of one input with the given preferences for depths 1, 2, … in each epoch."""
    columns = {
        f"preference_1_{d}": list(values) for d, values in enumerate(zip(*preferences, strict=True), 1)
    }
    return sae(inputs, 1, seed, history={"loss": [1.0] * len(preferences), **columns})


def test_the_drawing_has_a_line_for_each_depth_and_input():
    (entry,) = only_group(sae(2, 1, depth=2)).entries
    drawn = draw_courses(read_courses(entry))
    names = [f"input {i}, depth {d}" for i in (1, 2) for d in (1, 2)]
    assert [trace.name for trace in drawn.data] == ["all alike", *names]
    colours, dashes = ([getattr(t.line, part) for t in drawn.data[1:]] for part in ("color", "dash"))
    assert colours[:2] == colours[2:]
    assert colours[0] != colours[1]
    assert dashes == ["solid", "solid", "dash", "dash"]
    assert drawn.data[0].y == (0.5, 0.5)
    assert drawn.data[1].x == (1, 2, 3, 4)


@pytest.mark.parametrize(("epochs", "ticks"), [(1, [1]), (4, [1, 2, 3, 4]), (12, [2, 4, 6, 8, 10, 12])])
def test_ticks_stand_at_whole_epochs(epochs, ticks):
    (entry,) = only_group(sae(1, 1, epochs=epochs)).entries
    axis = draw_courses(read_courses(entry)).layout.xaxis
    assert axis.tick0 == 0
    assert [n * axis.dtick for n in range(99) if axis.range[0] <= n * axis.dtick <= axis.range[1]] == ticks


def test_steps_are_whole_and_ten_at_most():
    for last in (1, 7, 11, 49, 51, 999, 12345):
        assert isinstance(whole_step(last), int)
        assert 1 <= last / whole_step(last) <= 10


def test_configurations_together_have_bands_that_need_no_name():
    drawn = draw_courses(read_together(only_group(sae(1, 1), sae(2, 1)).entries))
    assert [t.name for t in drawn.data if t.showlegend is None] == [
        "all alike",
        *(f"depth {d}" for d in (1, 2, 3)),
    ]
    band, line = drawn.data[1:3]
    assert band.x == (1, 2, 3, 4, 4, 3, 2, 1)
    half = (band.y[3] - band.y[4]) / 2
    assert half > 0
    assert line.y[3] == pytest.approx((band.y[3] + band.y[4]) / 2, abs=1e-4)


def test_the_panel_offers_all_together_and_each_and_is_absent_without_a_preference():
    group = only_group(classes(), sae(1, 1), sae(2, 1))
    _, one, two = (entry.label for entry in group.entries)
    assert preference_panel(group).selectors[0].options == ("all", one, two)
    assert preference_panel(only_group(classes(), sae(2, 1))).selectors[0].options == (two,)
    assert preference_panel(only_group(classes(history={"loss": [1.0]}))) is None
