"""Regression scores against scikit-learn, scipy and closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from sklearn import metrics as sklearn
from torch.testing import assert_close

from pluribus.errors import SettingError
from pluribus.likelihood import Gaussian, Point
from pluribus.metrics import (
    coverage_gap,
    crps,
    gaussian_nll,
    interval_coverage,
    interval_width,
    log_predictive_density,
    mae,
    pinball,
    quantile_loss,
    rmse,
    sharpness,
)
from pluribus.metrics.regression import QUANTILES, absolute_moment
from tests.metrics.examples import mixed, normal, numbers, points

CEILING = -2.0702  # 1/2 log(0.1 / 2π)


def single(mean, variance):
    """One member N(mean, variance)."""
    return Gaussian(precision=1 / variance).prediction(torch.as_tensor(mean).double()[None])


@pytest.mark.parametrize("made", [numbers(), numbers(50, 3), points(), points(20, 2, 2)])
def test_distances_are_those_of_scikit_learn(made):
    mean, target = made[0].mean.flatten(), made[1].flatten()
    assert_close(rmse(*made), float(sklearn.root_mean_squared_error(target, mean)))
    assert_close(mae(*made), float(sklearn.mean_absolute_error(target, mean)))


@pytest.mark.parametrize("sizes", [(), (1,), (2,)])
def test_log_density_is_that_of_the_mixture_averaged_over_targets(sizes):
    prediction, target = numbers(40, *sizes, members=5)
    density = np.zeros(target.shape)
    for weight, mean, variance in zip(
        prediction.weights, prediction.means, prediction.variances, strict=True
    ):
        density += weight.item() * stats.norm.pdf(target, mean, variance.sqrt())
    assert_close(log_predictive_density(prediction, target), float(np.log(density).mean()))


def test_log_density_has_a_ceiling_by_the_precision():
    target = normal(30, 2)
    draws = Gaussian(precision=0.1).prediction(target.expand(10, 30, 2))
    assert_close(log_predictive_density(draws, target), CEILING, atol=5e-5, rtol=0)


@pytest.mark.parametrize(("error", "table"), [(3.48, -2.676), (4.29, -2.991), (1.24, -2.147)])
def test_log_density_of_one_draw_is_the_ceiling_less_its_error(error, table):
    prediction, target = Gaussian(precision=0.1).prediction(torch.full((1, 8), error)), torch.zeros(8)
    assert_close(rmse(prediction, target), error, rtol=1e-6, atol=0)
    assert_close(log_predictive_density(prediction, target), CEILING - 0.05 * error**2, atol=1e-4, rtol=0)
    assert_close(log_predictive_density(prediction, target), table, atol=1e-2, rtol=0)


def test_log_density_survives_draws_far_from_the_target():
    prediction = Gaussian(precision=1.0).prediction(torch.tensor([[100.0], [200.0]]))
    expected = stats.norm.logpdf(100.0) - math.log(2)
    assert_close(log_predictive_density(prediction, torch.zeros(1)), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("likelihood", [Gaussian(), Gaussian(precision=2.0)])
def test_gaussian_nll_is_that_of_torch_with_the_moments_of_the_mixture(likelihood):
    prediction = mixed(likelihood, 4, 50, 2)
    target = normal(*prediction.mean.shape, seed=8)
    loss = torch.nn.GaussianNLLLoss(full=True)(prediction.mean, target, prediction.variance)
    assert_close(gaussian_nll(prediction, target), loss.item())


def test_one_member_is_its_own_mixture():
    prediction, target = numbers(members=1)
    assert_close(gaussian_nll(prediction, target), -log_predictive_density(prediction, target))


@pytest.mark.parametrize(("level", "width"), [(0.95, 3.919928), (0.5, 1.348980)])
def test_intervals_of_one_gaussian_are_its_quantiles(level, width):
    prediction = single([0.0, 10.0], 4.0)
    edge = width - 1e-5
    assert_close(interval_width(prediction, torch.zeros(2), level), 2 * width, rtol=1e-6, atol=0)
    assert interval_coverage(prediction, torch.tensor([edge, 10 - edge]), level) == 1
    assert interval_coverage(prediction, torch.tensor([-edge, 10 - width - 1e-5]), level) == 0.5


def test_the_ends_of_an_interval_belong_to_it():
    prediction = numbers(20)[0]
    for end in prediction.interval(0.95):
        assert interval_coverage(prediction, end) == 1


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_targets_of_the_mixture_itself_are_covered(level):
    prediction = mixed(Gaussian(precision=0.5), 3, 20_000)
    target = prediction.sample(1, torch.Generator().manual_seed(0))[0]
    assert_close(interval_coverage(prediction, target, level), level, atol=0.01, rtol=0)
    assert coverage_gap(prediction, target, level) == abs(
        interval_coverage(prediction, target, level) - level
    )


def integrated(weights, means, stds, y):
    """Integral of the squared distance of a mixture's distribution from the step at y."""

    def cdf(t):
        return weights @ stats.norm.cdf(t, means, stds)

    low, high = min(y, (means - 12 * stds).min()), max(y, (means + 12 * stds).max())
    below, _ = integrate.quad(lambda t: cdf(t) ** 2, low, y, limit=200)
    above, _ = integrate.quad(lambda t: (1 - cdf(t)) ** 2, y, high, limit=200)
    return below + above


@pytest.mark.parametrize("sizes", [(), (2,)])
def test_crps_is_the_integral_over_the_distribution(sizes):
    prediction, target = numbers(3, *sizes, members=4)
    means, stds = (values.flatten(1).T.numpy() for values in (prediction.means, prediction.variances.sqrt()))
    rows = zip(means, stds, target.flatten().tolist(), strict=True)
    expected = [integrated(prediction.weights.numpy(), *row) for row in rows]
    assert_close(crps(prediction, target), float(np.mean(expected)), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("z", [-3.0, 0.0, 0.7])
def test_crps_of_one_gaussian_is_its_closed_form(z):
    std = 2.0
    expected = std * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi))
    assert_close(crps(single([1.0], std**2), torch.tensor([1 + std * z])), float(expected))


def test_crps_does_not_see_how_a_mixture_is_cut():
    prediction, target = numbers(30, members=3)
    twice = Gaussian(precision=0.5).prediction(
        torch.cat((prediction.members, prediction.members)),
        torch.cat((prediction.weights, prediction.weights)) / 2,
    )
    assert_close(crps(twice, target), crps(prediction, target))


def test_crps_of_sure_gaussians_is_their_absolute_error():
    target = normal(30)
    prediction = Gaussian(precision=1e12).prediction(normal(1, 30, seed=1))
    assert_close(crps(prediction, target), mae(prediction, target), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 1.0), (1.5, 4.0), (-3.0, 0.25)])
def test_absolute_moment_is_the_mean_of_a_folded_normal(mean, variance):
    found = absolute_moment(torch.tensor(mean).double(), torch.tensor(variance).double())
    std = math.sqrt(variance)
    assert_close(found.item(), float(stats.foldnorm.mean(abs(mean) / std, scale=std)))


def test_a_perfect_point_has_no_error():
    target = normal(9, 2)
    prediction = Point().prediction(target[None])
    assert (rmse(prediction, target), mae(prediction, target)) == (0.0, 0.0)


def test_a_level_of_one_is_refused():
    with pytest.raises(SettingError, match="level must be above 0 and below 1, got 1"):
        interval_coverage(*numbers(), level=1)


def test_quantile_losses_match_scikit_learn():
    prediction, target = numbers(60)
    for level in (0.05, 0.5, 0.9):
        wanted = sklearn.mean_pinball_loss(target, prediction.quantile(level), alpha=level)
        assert quantile_loss(prediction, target, level) == pytest.approx(wanted)
    wanted = [sklearn.mean_pinball_loss(target, prediction.quantile(one), alpha=one) for one in QUANTILES]
    assert pinball(prediction, target) == pytest.approx(sum(wanted) / len(wanted))


def test_sharpness_is_the_typical_standard_deviation():
    prediction, target = numbers(60)
    assert sharpness(prediction, target) == pytest.approx(prediction.std.square().mean().sqrt().item())
    assert sharpness(prediction, target + 5) == sharpness(prediction, target)
