"""Conformal prediction: the right order statistic, and coverage within binomial bounds."""

import math

import pytest
import torch
from scipy.stats import binom

from pluribus import Categorical, Gaussian, InputError, SettingError
from pluribus.calibration import ConformalIntervals, ConformalSets, conformal_quantile


def classified(temperature: float = 1.0, samples: int = 4000, seed: int = 0):
    """A prediction whose logits are too sharp by a factor, and targets drawn from the true distribution."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(samples, 5, generator=generator, dtype=torch.float64)
    target = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return Categorical().prediction((logits * temperature).unsqueeze(0)), target


def test_the_quantile_is_the_right_order_statistic():
    scores = torch.arange(1.0, 10.0)  # nine scores: ceil(10 * 0.8) = 8th
    assert conformal_quantile(scores, 0.8) == 8.0
    assert conformal_quantile(scores, 0.95) == math.inf  # ten scores would be needed


@pytest.mark.parametrize("level", [0.8, 0.9, 0.99])
def test_sets_cover_at_least_their_level_on_new_data(level):
    sets = ConformalSets.fit(*classified(3.0, seed=1), level=level)
    prediction, target = classified(3.0, seed=2)
    assert sets.coverage(prediction, target) == pytest.approx(level, abs=0.02)
    assert 1 <= sets.size(prediction) <= 5


@pytest.mark.parametrize("level", [0.8, 0.9])
def test_intervals_cover_their_level_though_the_variance_is_wrong(level):
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(1, 4000, 1, generator=generator, dtype=torch.float64)
    target = means[0] + torch.randn(4000, 1, generator=generator, dtype=torch.float64)
    prediction = Gaussian(precision=25.0).prediction(means)  # five times too sure
    intervals = ConformalIntervals.fit(prediction[:2000], target[:2000], level=level)
    assert intervals.coverage(prediction[2000:], target[2000:]) == pytest.approx(level, abs=0.025)
    assert intervals.width(prediction[2000:]) == pytest.approx(
        2 * 1.6449 if level == 0.9 else 2 * 1.2816, rel=0.05
    )


def test_impossible_requests_are_refused():
    with pytest.raises(SettingError, match="level must be above 0 and below 1"):
        conformal_quantile(torch.ones(3), 1.0)
    with pytest.raises(InputError, match="needs validation samples"):
        conformal_quantile(torch.ones(0), 0.9)


def test_the_quantile_of_several_scores_per_sample_is_that_of_equal_groups():
    """Samples with three equal scores each have the quantile of one score each."""
    scores = torch.rand(40, generator=torch.Generator().manual_seed(0))
    thrice = scores.repeat_interleave(3).reshape(40, 3)
    assert conformal_quantile(thrice, 0.9, samples=40) == conformal_quantile(scores, 0.9)
    assert conformal_quantile(thrice[:9], 0.9, samples=9) == conformal_quantile(scores[:9], 0.9) != math.inf
    assert conformal_quantile(thrice[:8], 0.9, samples=8) == math.inf


def test_coverage_over_many_calibrations_is_the_level():
    """Ten new scores after each of 400 calibrations with 30: on average as many inside as promised."""
    generator = torch.Generator().manual_seed(0)
    inside = 0
    for _ in range(400):
        scores = torch.randn(40, generator=generator)
        inside += int((scores[30:] <= conformal_quantile(scores[:30], 0.9)).sum())
    # The exact coverage is 28/31, and the ten scores of one calibration hang together: a wider bound.
    low, high = binom.interval(0.999, 4000, 28 / 31)
    assert low - 30 <= inside <= high + 30
