"""Decisions: computed from stored outcomes, equal to those of the full probabilities."""

import numpy as np
import pytest
import torch

from pluribus.calibration_record import Calibration
from pluribus.comparison.decisions import check_costs, with_costs
from pluribus.comparison.outcomes import Outcomes, read_outcomes
from pluribus.comparison.record import Record
from pluribus.data import diabetes, two_moons
from pluribus.errors import SettingError
from pluribus.metrics.costs import Costs, decide, expected_costs
from tests.metrics.examples import answers, classes, numbers

CLINIC = Costs(miss=10, alarm=1, defer=0.5)


def run(made):
    return Record("key", {"kind": "single"}, "task", "net", 0, {}, outcomes=read_outcomes(*made))


@pytest.mark.parametrize(
    ("made", "costs"),
    [
        (classes(200, 2), CLINIC),
        (answers(200), CLINIC),
        (classes(200, 5), Costs(wrong=2, defer=0.4)),
    ],
    ids=["two classes", "yes or no", "five classes"],
)
def test_stored_outcomes_decide_as_the_probabilities_do(made, costs):
    prediction, target = made
    p = prediction.log_probabilities.exp().numpy()
    wanted = expected_costs(decide(p, costs), target.long().numpy(), costs, p.shape[1])
    found = with_costs(run(made), costs)
    for name, value in wanted.items():
        assert found.decisions[name] == pytest.approx(value, abs=1e-6)
    assert found.decisions["cost_defer"] == costs.defer
    low, high = found.intervals["expected_cost"]
    assert low < found.decisions["expected_cost"] < high
    assert found.outcomes.columns["cost"].mean() == pytest.approx(wanted["expected_cost"], rel=1e-5)


@pytest.mark.parametrize("made", [classes(200, 2), answers(200), classes(200, 5)], ids=["two", "yes", "five"])
def test_calibrated_probabilities_decide(made):
    prediction, target = made
    costs = Costs(wrong=2, defer=0.4)
    calibrated = prediction.calibrated(Calibration(temperature=3.0))
    p = calibrated.log_probabilities.exp().numpy()
    wanted = expected_costs(decide(p, costs), target.long().numpy(), costs, p.shape[1])
    outcomes = read_outcomes(prediction, target, calibrated)
    found = with_costs(Record("key", {"kind": "single"}, "task", "net", 0, {}, outcomes=outcomes), costs)
    assert found.decisions["expected_cost"] == pytest.approx(wanted["expected_cost"], abs=1e-6)
    assert found.decisions["expected_cost"] != with_costs(run(made), costs).decisions["expected_cost"]


def test_records_without_classes_stay_as_they_are():
    of_numbers = run(numbers(20))
    assert with_costs(of_numbers, CLINIC) is of_numbers
    assert with_costs(run(classes(20, 2)), None).decisions == {}


def test_other_costs_replace_those_of_a_record():
    once = with_costs(run(classes(50, 2)), CLINIC)
    again = with_costs(once, Costs(wrong=3))
    assert again.decisions["deferred"] == 0
    assert "cost_miss" not in again.decisions


def test_costs_that_do_not_fit_are_refused():
    check_costs(CLINIC, two_moons(train=20))
    check_costs(None, diabetes())
    with pytest.raises(SettingError, match="costs must be of classes, got numbers"):
        check_costs(CLINIC, diabetes())
    with pytest.raises(SettingError, match="need 2 classes, got 5"):
        with_costs(run(classes(20, 5)), CLINIC)


def test_costs_survive_the_file(tmp_path):
    found = with_costs(run(classes(30, 2)), CLINIC)
    found.outcomes.save(tmp_path / "a.npz")
    stored = Outcomes.load(tmp_path / "a.npz").columns["cost"]
    assert np.array_equal(stored, found.outcomes.columns["cost"])
    assert Record.from_json(found.to_json()).decisions == found.decisions
    assert Record.from_json(found.to_json()).intervals == found.intervals


def test_probabilities_of_yes_are_stored_for_two_outcomes_alone():
    prediction, _ = classes(20, 2)
    stored = run(classes(20, 2)).outcomes.columns["positive"]
    assert torch.allclose(torch.from_numpy(stored).double(), prediction.probabilities[:, 1], atol=1e-6)
    assert "positive" not in run(classes(20, 3)).outcomes.columns
