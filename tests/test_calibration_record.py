"""Calibration as a value: it prints its numbers, and keeps a bounded number of scores."""

import math

import pytest
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


def test_thinned_scores_are_a_random_part():
    few = torch.tensor([3.0, 1.0, 2.0])
    assert thinned(few).tolist() == [1.0, 2.0, 3.0]
    many = torch.randperm(3 * MOST_REFERENCE, generator=torch.Generator().manual_seed(0)).float()
    kept = thinned(many)
    assert len(kept) == MOST_REFERENCE == 10_000
    assert (kept.diff() > 0).all()
    # A third of all numbers, without a pattern: neighbours differ by other numbers than 3 most often.
    assert (kept.diff() == 3).double().mean() < 0.2
    assert kept.mean() / many.mean() == pytest.approx(1, abs=0.03)
