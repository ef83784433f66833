"""The front: tested information, then drawing."""

import pytest

from pluribus.search.figures.front_points import front_panel
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
