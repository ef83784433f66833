"""Temperature and conformal prediction: closed forms, guarantees, neutral cases."""

import math

import pytest
import torch
from torch.testing import assert_close

from pluribus import Categorical, Gaussian, InputError, SettingError
from pluribus.calibration import (
    ConformalIntervals,
    ConformalSets,
    conformal_quantile,
    fit_temperature,
    with_temperature,
)


def classified(temperature: float = 1.0, samples: int = 4000, seed: int = 0):
    """A prediction whose logits are too sharp by a factor, and targets drawn from the true distribution."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(samples, 5, generator=generator, dtype=torch.float64)
    target = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return Categorical().prediction((logits * temperature).unsqueeze(0)), target


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_the_temperature_undoes_a_factor_of_the_logits(factor):
    assert fit_temperature(*classified(factor)) == pytest.approx(factor, rel=0.05)


@pytest.mark.parametrize("samples", [20, 4000])
def test_the_fitted_temperature_is_a_minimum(samples):
    """Of the likelihood of all samples and of one more, whose class may be any."""
    prediction, target = classified(3.0, samples)
    best = fit_temperature(prediction, target)

    def loss(temperature):
        logs = with_temperature(prediction, temperature).log_probabilities
        return sum(-logs[range(samples), target]).item() - logs.mean().item()

    assert loss(best) < min(loss(best * 1.01), loss(best / 1.01))


def test_temperature_one_changes_nothing_and_no_temperature_changes_labels():
    prediction, _ = classified()
    assert_close(with_temperature(prediction, 1.0).probabilities, prediction.probabilities)
    assert_close(with_temperature(prediction, 7.0).labels, prediction.labels)


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


def test_without_a_mistake_the_temperature_falls_and_stays_away_from_zero():
    """More samples without a mistake are more evidence that the network is not sure enough."""
    found = []
    for samples in (10, 100, 1000):
        prediction, _ = classified(samples=samples)
        found.append(fit_temperature(prediction, prediction.labels))
    assert 1 > found[0] > found[1] > found[2] > 0.02


def test_a_position_without_a_class_is_left_out():
    prediction, target = classified(3.0, 40)
    dense = Categorical().prediction(prediction.log_probabilities.T.reshape(1, 1, 5, 40).expand(1, 2, 5, 40))
    twice = torch.stack((target, torch.full_like(target, -100)))
    assert fit_temperature(dense, twice) == pytest.approx(fit_temperature(prediction, target), rel=1e-6)
