"""Successive halving with several objectives."""

import pytest

from pluribus.errors import SettingError
from pluribus.search.halving import Halving


def test_rungs_are_before_the_end():
    assert Halving(keep=3, rungs=2).epochs(9) == [1, 3]
    assert Halving().epochs(1) == []


def test_trial_on_the_front_goes_on():
    others = [(1, 9), (9, 1), (2, 8), (8, 2)]
    assert not Halving().stops((5, 5), others)


def test_trial_behind_a_third_of_all_stops():
    others = [(1, 9), (9, 1), (2, 8), (8, 2)]
    assert Halving(keep=3).stops((9, 9), others)


def test_trial_behind_few_goes_on():
    others = [(1, 1), *[(20, 20)] * 8]
    assert not Halving(keep=3).stops((2, 2), others)


def test_first_trials_go_on_and_lost_values_stop():
    assert not Halving(keep=3).stops((9, 9), [(1, 1)])
    assert Halving().stops((float("nan"), 1), [])


def test_settings_are_checked():
    with pytest.raises(SettingError, match="keep"):
        Halving(keep=1)
