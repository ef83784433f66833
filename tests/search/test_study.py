"""The result of a search: the front, the best within a budget, and what it costs."""

import pytest

from pluribus.errors import SettingError
from tests.search.cases import made_up_study


@pytest.fixture
def study(tmp_path):
    return made_up_study(tmp_path)


def test_front_holds_what_nothing_beats(study):
    assert [trial.number for trial in study.front] == [1, 0]
    assert [trial.number for trial in study.complete] == [0, 1, 2]


def test_best_within_a_budget_is_by_validation_data(study):
    assert study.choose().number == 1
    assert study.choose("multiply_adds<=1.5x").number == 0
    assert study.choose(objective="accuracy").number == 1


def test_budget_that_no_trial_meets_names_the_nearest(study):
    with pytest.raises(SettingError, match=r"nearest is sae\(inputs=1, exits=1\): multiply-adds 1 ×"):
        study.choose("multiply_adds<=0.5x")


def test_unknown_or_missing_objective_is_refused(study):
    with pytest.raises(SettingError, match="nll"):
        study.choose(objective="nlll")
    with pytest.raises(SettingError, match="ece must be measured"):
        study.choose(objective="ece")


def test_configuration_is_that_of_the_parameters(study):
    method = study.configuration(study.trials[2]).method
    assert (method.inputs, method.exits) == (2, 2)


def test_hypervolume_rises_with_trials(study):
    curve = study.hypervolumes()
    assert len(curve) == 3
    assert curve == sorted(curve)
    assert study.hypervolumes([study]) == curve


def test_price_is_in_words(study):
    assert study.price(study.trials[1]) == "5 parameters (1.00 ×) and 20 multiply-adds (2.00 ×)"


def test_table_has_a_row_for_each_point_of_the_front(study):
    assert study.heads() == ("configuration", "nll", "parameters", "multiply-adds")
    assert study.table()[0] == ("sae(inputs=2, exits=1)", "0.3", "1.00 ×", "2.00 ×")
    assert "3 trials measured, 2 on the front" in str(study)
    assert "<table" in study._repr_html_()
