"""Numbers come back in their own units, with a deviation and an interval."""

import numpy as np
import pytest

from pluribus import Training
from pluribus.errors import InputError, SettingError
from pluribus.sklearn import EnsembleRegressor

FAST = {"hidden": (8,), "method": "deep_ensembles(members=2)", "training": Training(steps=60, lr=0.1)}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(120, 1))
    return X, 1000 + 50 * X[:, 0] + 5 * rng.normal(size=120)


@pytest.fixture(scope="module")
def fitted(data):
    return EnsembleRegressor(**FAST, calibrated=True, random_state=0).fit(*data)


def test_predict_has_the_units_of_the_targets(fitted, data):
    X, y = data
    mean, std = fitted.predict(X, return_std=True)
    assert mean.shape == std.shape == y.shape
    assert fitted.score(X, y) > 0.9
    assert 2 < std.mean() < 20
    np.testing.assert_array_equal(fitted.predict(X), mean)


def test_interval_holds_most_targets(fitted, data):
    X, y = data
    low, high = fitted.predict_interval(X)
    assert 0.8 < ((low <= y) & (y <= high)).mean() <= 1


def test_interval_needs_a_calibration(data):
    model = EnsembleRegressor(**FAST, random_state=0).fit(*data)
    with pytest.raises(InputError, match="must be calibrated"):
        model.predict_interval(data[0])


def test_several_targets_are_predicted_together(data):
    X, y = data
    several = np.stack([y, -2 * y], 1)
    model = EnsembleRegressor(**FAST, likelihood="point", random_state=0).fit(X, several)
    assert model.predict(X).shape == (120, 2)
    assert model.score(X, several) > 0.9


def test_likelihood_must_be_of_numbers(data):
    with pytest.raises(SettingError, match="likelihood must be gaussian or point"):
        EnsembleRegressor(likelihood="categorical").fit(*data)
