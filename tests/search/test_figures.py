"""Figures of a search: tested information, then drawing."""

import pytest

from pluribus.search.figures import (
    describe,
    front_panel,
    hypervolume_panel,
    importance_panel,
    kind_of,
    parallel_panel,
)
from tests.search.cases import made_up_study


@pytest.fixture
def study(tmp_path):
    return made_up_study(tmp_path)


def test_front_shows_trials_the_line_and_the_choice(study):
    panel = front_panel(study, study.choose())
    drawn = panel.first
    line, points, star = drawn.data
    assert list(line.x) == [10, 20]
    assert list(line.y) == [0.5, 0.3]
    assert list(points.x) == [10, 20, 30]
    assert points.name == "sae"
    assert (star.name, list(star.y)) == ("take this one", [0.3])
    assert len(panel.figures) == 2


def test_hypervolume_has_a_curve_for_each_search(study):
    panel = hypervolume_panel(study, {"random": [[0.5, 10.0], [0.1, 5.0]]})
    own, other = panel.first.data
    assert [len(own.y), len(other.y)] == [3, 2]
    assert other.name == "random"
    # The other search found a point that dominates all: axes are shared.
    assert other.y[-1] > own.y[-1]
    assert "--against" in hypervolume_panel(study, {}).caption


def test_parallel_axes_end_with_the_objectives(study):
    drawn = parallel_panel(study).first
    assert list(drawn.data[0].x) == ["method", "inputs", "exits", "NLL", "multiply-adds"]
    assert [trace.opacity for trace in drawn.data] == [1, 1, 0.25]


def test_importance_needs_trials(study):
    assert importance_panel(study) is None


def test_trial_is_described_without_markup(study):
    assert describe(study.trials[0]).startswith("trial 0: sae(inputs=1, exits=1)<br>nll: 0.5")
    assert kind_of(study.trials[4]) == "single"
