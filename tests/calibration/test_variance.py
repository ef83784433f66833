import math

import pytest
import torch
from torch.testing import assert_close

from pluribus.calibration.variance import safe_scale, variance_scale
from pluribus.calibration_record import Calibration
from pluribus.likelihood import Gaussian
from pluribus.metrics.regression import gaussian_nll


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_scale_of_the_variance_is_that_of_maximum_likelihood():
    prediction = Gaussian(precision=4.0).prediction(normal(3, 50, 2))
    target = 2 * normal(50, 2, seed=5)
    scale = variance_scale(prediction, target)

    def loss(scale):
        """Return the NLL of a Gaussian with the mixture's moments, and of one sample as wide as it."""
        variance = scale * prediction.variance
        nll = (target - prediction.mean).square() / variance + variance.log()
        return (nll.sum() + 1 / scale + math.log(scale)).item()

    assert loss(scale) < min(loss(1.01 * scale), loss(scale / 1.01))
    found = prediction.calibrated(Calibration(variance_scale=scale))
    assert_close(found.variance, scale * prediction.variance)
    assert_close(found.mean, prediction.mean)
    assert_close(found.raw.means, prediction.means)


@pytest.mark.parametrize("spread", [0.2, 0.5, 0.9, 1.1, 2.0])
def test_a_scale_is_applied_if_the_likelihood_of_corrupted_data_is_no_worse(spread):
    prediction = Gaussian(precision=1.0).prediction(torch.zeros(1, 200, 1))
    target = spread * normal(200, 1)
    scale, note = safe_scale(0.4, prediction, target)

    def nll(scale):
        return gaussian_nll(prediction.calibrated(Calibration(variance_scale=scale)), target)

    applied = nll(0.4) <= nll(1.0)
    assert (scale == 0.4) == applied == (note == "")
    assert nll(scale) <= nll(1.0)
    assert scale <= 1
    # A scale above 1 makes predictions less sure, and needs no proof.
    assert safe_scale(1.5, prediction, target) == (1.5, "")
