"""Calibration as a value: it goes to a file and back, and wrong files are refused by name."""

import json
import math

import pytest
import torch
from torch.testing import assert_close

from pluribus.calibration_record import MOST_REFERENCE, Calibration, thinned
from pluribus.errors import CheckpointError


def fitted(**changes) -> Calibration:
    values = {
        "temperature": 1.5,
        "level": 0.9,
        "quantile": math.inf,
        "false_alarm": 0.05,
        "score": "mahalanobis",
        "threshold": 3.25,
        "means": torch.zeros(2, 3, dtype=torch.float64),
        "whitening": torch.eye(3, dtype=torch.float64),
        "reference": torch.arange(4.0, dtype=torch.float64),
        "aurocs": {"entropy": 0.75, "mahalanobis": 0.9},
        "samples": 12,
        "notes": ("A note.",),
    }
    return Calibration(**{**values, **changes})


def test_calibration_survives_json():
    one = fitted()
    document = json.loads(json.dumps(one.to_dict(), allow_nan=False))
    other = Calibration.from_dict(document, one.tensors())
    assert other.to_dict() == one.to_dict()
    assert other.quantile == math.inf
    assert_close(other.tensors(), one.tensors())


def test_repr_has_the_numbers_and_no_tensors():
    assert repr(fitted(quantile=0.5)) == (
        "Calibration(temperature=1.5, variance_scale=1, level=0.9, quantile=0.5, false_alarm=0.05, "
        "threshold=3.25, score='mahalanobis', samples=12)"
    )


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
        Calibration.from_dict({**fitted().to_dict(), **change}, fitted().tensors())


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
        Calibration.from_dict(fitted().to_dict(), {**fitted().tensors(), **change})


def test_thinned_scores_keep_both_ends():
    few = torch.tensor([3.0, 1.0, 2.0])
    assert thinned(few).tolist() == [1.0, 2.0, 3.0]
    many = torch.randperm(3 * MOST_REFERENCE, generator=torch.Generator().manual_seed(0)).float()
    kept = thinned(many)
    assert len(kept) == MOST_REFERENCE
    assert (kept[0], kept[-1]) == (0, 3 * MOST_REFERENCE - 1)
    assert (kept.diff() > 0).all()
