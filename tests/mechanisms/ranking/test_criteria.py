"""Metrics of sets from sums: the divergence, and blocks that change nothing."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.ranking import criteria
from pluribus.mechanisms.ranking.criteria import RIDGE, criterion, divergence, is_higher_better
from tests.cases import seeded


def normal(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=seeded(0))


def moments(mean, std):
    return torch.stack((mean, mean.square() + std.square()), -2)


def test_the_divergence_is_that_of_the_reference_from_the_members():
    mean, std, reference = normal(3, 5), normal(3, 5).abs(), normal(5, 2).abs()
    expected = kl_divergence(Normal(reference[:, 0], reference[:, 1] + RIDGE), Normal(mean, std + RIDGE))
    assert_close(divergence(reference, moments(mean, std)), expected)
    assert (expected >= 0).all()


def test_the_divergence_of_equals_is_zero_and_one_member_is_finite():
    reference = normal(5, 2).abs()
    same = divergence(reference, moments(reference[None, :, 0], reference[None, :, 1]))
    assert_close(same, torch.zeros(1, 5, dtype=torch.float64), rtol=0, atol=1e-9)
    alone = divergence(reference, moments(reference[None, :, 0], torch.zeros(1, 5, dtype=torch.float64)))
    assert alone.isfinite().all()


@pytest.mark.parametrize("metric", ["nll", "brier", "accuracy"])
def test_small_blocks_change_nothing(metric, monkeypatch):
    by = criterion(pl.Categorical().prediction(normal(7, 9, 3)), torch.arange(9) % 3, metric)
    whole = by.with_each(by.values[0], 1)
    monkeypatch.setattr(criteria, "BLOCK", 60)
    assert_close(by.with_each(by.values[0], 1), whole, rtol=0, atol=0)


def test_numbers_far_from_zero_do_not_cancel():
    near = normal(4, 9, 2)
    far = near + torch.tensor([1e7, 0.0], dtype=torch.float64)
    target = near[0, :, :1]
    for metric in ("nll", "rmse"):
        scores = []
        for outputs, y in ((near, target), (far, target + 1e7)):
            by = criterion(pl.Gaussian().prediction(outputs), y, metric)
            scores.append(by.with_each(by.values[0], 1))
        assert_close(scores[0], scores[1], rtol=1e-6, atol=0)


def test_directions_are_those_of_the_metrics():
    names = {name for makers in criteria.CRITERIA.values() for name in makers}
    assert {name for name in names if is_higher_better(name)} == {"accuracy", "log_predictive_density"}
