"""Texts about a trial."""

import pytest

from pluribus.search.figures.trial_text import describe, kind_of, told
from tests.search.cases import made_up_study


@pytest.fixture
def study(tmp_path):
    return made_up_study(tmp_path)


def test_trial_is_described_without_markup(study):
    assert describe(study.trials[0]).startswith("trial 0: sae(inputs=1, exits=1)<br>nll: 0.5")
    assert kind_of(study.trials[4]) == "single"
    assert [told(1 / 3), told("a")] == ["0.333", "a"]
