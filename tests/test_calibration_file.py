"""A calibration goes to a file and back, and wrong files are refused by name."""

import json
import math

import pytest
import torch
from torch.testing import assert_close

from pluribus.calibration_file import calibration_of
from pluribus.calibration_record import MOST_REFERENCE
from pluribus.errors import CheckpointError
from tests.test_calibration_record import fitted


def test_calibration_survives_json():
    one = fitted()
    document = json.loads(json.dumps(one.to_dict(), allow_nan=False))
    other = calibration_of(document, one.tensors())
    assert other.to_dict() == one.to_dict()
    assert other.quantile == math.inf
    assert_close(other.tensors(), one.tensors())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.0}, "calibration.temperature must be above 0"),
        ({"temperature": math.nan}, "calibration.temperature must be a finite number"),
        ({"variance_scale": -1.0}, "calibration.variance_scale must be above 0"),
        ({"level": 1.0}, "calibration.level must be above 0 and below 1"),
        ({"false_alarm": 0}, "calibration.false_alarm must be above 0 and below 1"),
        ({"quantile": "huge"}, "calibration.quantile must be"),
        ({"score": "__class__"}, "calibration.score must be mahalanobis or one of"),
        ({"version": 99}, "calibration.version must be a whole number from 1 to 1"),
        ({"extra": 1}, "calibration.extra is unknown"),
    ],
)
def test_numbers_out_of_range_are_refused(change, message):
    with pytest.raises(CheckpointError, match=message):
        calibration_of({**fitted().to_dict(), **change}, fitted().tensors())


@pytest.mark.parametrize(
    "change",
    [
        {"means": torch.zeros(3)},
        {"whitening": torch.eye(4)},
        {"reference": torch.zeros(0)},
        {"reference": torch.zeros(MOST_REFERENCE + 1)},
        {"means": torch.full((2, 3), math.nan)},
        {"reference": torch.arange(4)},
        {"other": torch.zeros(1)},
    ],
    ids=str,
)
def test_tensors_that_do_not_fit_are_refused(change):
    with pytest.raises(CheckpointError, match="calibration"):
        calibration_of(fitted().to_dict(), {**fitted().tensors(), **change})


@pytest.mark.parametrize("weights", [torch.tensor([0.5, 0.6]), torch.tensor([0.0, 1.0]), torch.zeros(1, 1)])
def test_weights_that_are_no_distribution_are_refused(weights):
    with pytest.raises(CheckpointError, match="weights"):
        calibration_of(fitted().to_dict(), fitted().tensors() | {"weights": weights})
