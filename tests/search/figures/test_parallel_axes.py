"""Parallel axes."""

import pytest

from pluribus.search.figures.parallel_axes import parallel_panel
from tests.search.cases import made_up_study


@pytest.fixture
def study(tmp_path):
    return made_up_study(tmp_path)


def test_parallel_axes_end_with_the_objectives(study):
    drawn = parallel_panel(study).first
    assert list(drawn.data[0].x) == ["method", "inputs", "exits", "NLL", "multiply-adds"]
    assert [trace.opacity for trace in drawn.data] == [1, 1, 0.25]
