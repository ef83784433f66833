"""Calibration as a value: it prints its numbers, and keeps a bounded number of scores."""

import math

import torch

from pluribus.calibration_record import MOST_REFERENCE, Calibration, thinned


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


def test_repr_has_the_numbers_and_no_tensors():
    assert repr(fitted(quantile=0.5)) == (
        "Calibration(temperature=1.5, variance_scale=1, level=0.9, quantile=0.5, false_alarm=0.05, "
        "threshold=3.25, score='mahalanobis', samples=12)"
    )


def test_thinned_scores_keep_both_ends():
    few = torch.tensor([3.0, 1.0, 2.0])
    assert thinned(few).tolist() == [1.0, 2.0, 3.0]
    many = torch.randperm(3 * MOST_REFERENCE, generator=torch.Generator().manual_seed(0)).float()
    kept = thinned(many)
    assert len(kept) == MOST_REFERENCE
    assert (kept[0], kept[-1]) == (0, 3 * MOST_REFERENCE - 1)
    assert (kept.diff() > 0).all()
