"""Importance of settings, as bars."""

import pytest

from pluribus.search.figures.importance_bars import importance_panel
from tests.search.cases import made_up_study


@pytest.fixture
def study(tmp_path):
    return made_up_study(tmp_path)


def test_importance_needs_trials(study):
    assert importance_panel(study) is None
