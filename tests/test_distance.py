"""Distance from the classes: shrinkage of scikit-learn, distances of SciPy, few samples, many outputs."""

import pytest
import torch
from scipy.spatial.distance import mahalanobis
from sklearn.covariance import LedoitWolf
from torch.testing import assert_close

from pluribus.distance import (
    MOST_FEATURES,
    distance,
    fit_distance,
    outputs_side_by_side,
    shrunk_covariance,
    whitening_of,
)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("samples", "features"), [(200, 4), (30, 20), (5, 12), (2, 3)])
def test_shrunk_covariance_is_that_of_scikit_learn(samples, features):
    residuals = normal(samples, features) @ normal(features, features, seed=1)
    expected = LedoitWolf(assume_centered=True).fit(residuals.numpy()).covariance_
    assert_close(shrunk_covariance(residuals), torch.tensor(expected))


def test_distance_is_that_of_scipy_to_the_nearest_class():
    features, classes = normal(60, 4), torch.arange(60) % 3
    features += 3.0 * classes.unsqueeze(1)
    means, whitening = fit_distance(features, classes)
    assert_close(means, torch.stack([features[classes == c].mean(0) for c in range(3)]))
    inverse = (whitening @ whitening.T).numpy()
    new = normal(5, 4, seed=3)
    expected = [min(mahalanobis(x, mean, inverse) for mean in means.numpy()) for x in new.numpy()]
    assert_close(distance(new, means, whitening), torch.tensor(expected))
    covariance = shrunk_covariance(features - means[classes])
    assert_close(whitening @ whitening.T, torch.linalg.inv(covariance))


def test_distance_of_few_samples_is_finite_and_grows_away_from_them():
    features, classes = normal(6, 40), torch.tensor([0, 0, 1, 1, 2, 3])
    means, whitening = fit_distance(features, classes)
    # Classes 2 and 3 have one sample each: the mean of all stands for both.
    assert_close(means[2:], features.mean(0, keepdim=True))
    near, far = (distance(features * scale, means, whitening) for scale in (1, 10))
    assert near.isfinite().all()
    assert (far > near).all()


def test_whitening_of_constant_outputs_is_the_identity():
    assert_close(whitening_of(torch.zeros(3, 3)), torch.eye(3))


def test_outputs_lie_side_by_side_or_are_averaged_where_they_are_many():
    weights = torch.tensor([0.75, 0.25])
    outputs = normal(2, 3, 4)
    assert_close(outputs_side_by_side(outputs, weights), torch.cat((outputs[0], outputs[1]), 1))
    assert outputs_side_by_side(outputs[..., 0], weights).shape == (3, 2)
    many = normal(2, 3, MOST_FEATURES)
    assert_close(outputs_side_by_side(many, weights), 0.75 * many[0] + 0.25 * many[1])
    assert outputs_side_by_side(normal(2, 3, MOST_FEATURES + 1), weights) is None
    assert outputs_side_by_side(normal(2, 3, 4, 5), weights) is None
