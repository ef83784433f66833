"""The hypervolume after each trial."""

import pytest

from pluribus.search.figures.hypervolume_curve import hypervolume_panel
from tests.search.cases import made_up_study


@pytest.fixture
def study(tmp_path):
    return made_up_study(tmp_path)


def test_hypervolume_has_a_curve_for_each_search(study):
    panel = hypervolume_panel(study, {"random": [[0.5, 10.0], [0.1, 5.0]]})
    own, other = panel.first.data
    assert [len(own.y), len(other.y)] == [3, 2]
    assert other.name == "random"
    # The other search found a point that dominates all: axes are shared.
    assert other.y[-1] > own.y[-1]
    assert "--against" in hypervolume_panel(study, {}).caption
