"""Measuring on validation data: test data stay unseen, and calibration is judged on its other half."""

from dataclasses import replace

import pytest

from pluribus.data.task import Split
from pluribus.errors import SettingError
from pluribus.methods import Single
from pluribus.search.validation import measure_validation, without_test
from tests.search.cases import moons, problem


def test_test_data_are_replaced():
    blind = without_test(moons())
    assert blind.test is blind.validation
    assert not blind.shifted
    assert not blind.ood


def test_task_without_validation_data_is_refused():
    task = moons()
    empty = replace(task, validation=Split(task.validation.x[:0], task.validation.y[:0]))
    with pytest.raises(SettingError, match="validation data"):
        without_test(empty)


def test_calibrated_metrics_are_those_of_the_half_that_gave_no_temperature(tmp_path):
    ours = problem(tmp_path)
    ensemble = ours.convert(Single()).eval()
    raw, calibrated = measure_validation(ensemble, ours.blind)
    assert calibrated == {}
    ensemble.calibrate(ours.blind)
    again, calibrated = measure_validation(ensemble, ours.blind)
    assert again == raw
    assert {"scaled_nll", "scaled_ece"} <= set(calibrated)
    whole = ensemble.predict(ours.task.validation.x)
    assert calibrated["scaled_nll"] != pytest.approx(
        float(-whole.log_probabilities.gather(1, ours.task.validation.y[:, None]).mean()), rel=1e-9
    )
