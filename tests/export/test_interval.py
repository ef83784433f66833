"""The exported interval is that of `GaussianPrediction.interval`."""

import pytest
import torch
from torch.testing import assert_close

from pluribus.export.interval import mixture_interval
from pluribus.likelihood import Gaussian


def random(*shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_interval_agrees_with_the_prediction(level):
    outputs = random(5, 20, 4, seed=0) * 3
    prediction = Gaussian().prediction(outputs, torch.tensor([0.1, 0.2, 0.3, 0.4, 0.0]))
    found = mixture_interval(prediction.means, prediction.variances, prediction.weights, level)
    for end, expected, mass in zip(
        found, prediction.interval(level), ((1 - level) / 2, (1 + level) / 2), strict=True
    ):
        assert_close(end, expected, atol=2e-5, rtol=2e-5)
        assert_close(prediction.cdf(end), torch.full_like(end, mass), atol=1e-6, rtol=0)


def test_interval_keeps_its_digits_beside_a_large_mean():
    means = torch.tensor([[4096.0], [4096.5]])
    prediction = Gaussian(precision=100).prediction(means)
    lower, upper = mixture_interval(prediction.means, prediction.variances, prediction.weights, 0.9)
    expected = Gaussian(precision=100).prediction(means - 4096).interval(0.9)
    assert_close(lower - 4096, expected[0], atol=5e-4, rtol=0)
    assert_close(upper - 4096, expected[1], atol=5e-4, rtol=0)
