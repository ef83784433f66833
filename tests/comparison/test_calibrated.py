"""A calibration is measured on test data, and measuring leaves the ensemble as it was."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus.calibration_record import Calibration
from pluribus.comparison.calibrated import (
    calibration_for,
    measure_calibration,
    measure_strangers,
    scaled_metrics,
)
from pluribus.data import two_moons
from pluribus.data.task import Split
from pluribus.methods import DeepEnsembles

REFERENCE = torch.zeros(1, dtype=torch.float64)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fitted(**changes):
    parts = {"level": 0.8, "quantile": 0.5, "false_alarm": 0.1, "threshold": 0.4, "reference": REFERENCE}
    return Calibration(**{**parts, **changes})


def test_classes_have_raw_and_scaled_scores_and_promises_kept():
    raw, target = pl.Categorical().prediction(normal(3, 50, 4)), torch.arange(50) % 4
    prediction = raw.calibrated(fitted(temperature=2.0, score="entropy"))
    found = measure_calibration(prediction, target)
    powers = raw.probabilities.sqrt()
    shares = powers / powers.sum(1, keepdim=True)
    right = shares.gather(1, target.unsqueeze(1))
    assert found["temperature"] == 2.0
    assert found["scaled_nll"] == pytest.approx(-right.log().mean().item())
    assert found["conformal_coverage"] == pytest.approx((right >= 0.5).double().mean().item())
    assert found["conformal_size"] == pytest.approx((shares >= 0.5).sum(1).double().mean().item())
    assert found["false_alarms"] == pytest.approx((raw.entropy > 0.4).double().mean().item())
    assert "variance_scale" not in found
    assert scaled_metrics(prediction, target)["scaled_nll"] == found["scaled_nll"]


def test_numbers_have_a_scale_and_a_width():
    raw = pl.Gaussian(precision=4.0).prediction(normal(3, 50, 1))
    prediction = raw.calibrated(fitted(variance_scale=4.0, score="variance"))
    found = measure_calibration(prediction, normal(50, 1, seed=1))
    low, high = prediction.interval()
    assert found["variance_scale"] == 4.0
    assert found["conformal_width"] == pytest.approx((high - low).mean().item())
    assert {"scaled_gaussian_nll", "scaled_crps"} <= found.keys()
    assert "temperature" not in found


def test_raw_predictions_have_nothing_to_measure():
    raw = pl.Categorical().prediction(normal(3, 50, 4))
    assert measure_calibration(raw, torch.arange(50) % 4) == {}
    assert measure_strangers(raw, raw) == {}


def test_strangers_are_measured_by_the_chosen_score():
    score = fitted(score="max_logit", threshold=0.0)
    usual = pl.Categorical().prediction(5 + normal(2, 50, 4)).calibrated(score)
    strange = pl.Categorical().prediction(-5 + normal(2, 50, 4, seed=1)).calibrated(score)
    found = measure_strangers(usual, strange)
    assert found == {"auroc_chosen": 1.0, "fpr95_chosen": 0.0, "flagged": 1.0}


def test_measuring_fits_a_calibration_and_does_not_keep_it():
    task = two_moons(train=50)
    ensemble = pl.convert(nn.Linear(2, 2), DeepEnsembles(members=2)).eval()
    assert calibration_for(ensemble, task).level == 0.9
    assert ensemble.calibration is None
    kept = ensemble.calibrate(task)
    assert calibration_for(ensemble, task) is kept is ensemble.calibration
    bare = replace(task, validation=Split(task.validation.x[:0], task.validation.y[:0]))
    ensemble.calibration = None
    assert calibration_for(ensemble, bare) is None


def test_targets_that_suit_no_set_leave_nothing_to_measure():
    task = two_moons(train=50)
    shares = {
        name: Split(getattr(task, name).x, getattr(task, name).y / 3) for name in ("train", "validation")
    }
    odd = replace(
        task, likelihood=pl.Bernoulli(), classes=None, class_names=(), test=shares["train"], **shares
    )
    ensemble = pl.convert(
        nn.Sequential(nn.Linear(2, 1), nn.Flatten(0)), DeepEnsembles(members=2), "bernoulli"
    )
    assert calibration_for(ensemble.eval(), odd) is None
