"""MAPIE takes the deviation of an ensemble for its model of the residuals."""

import numpy as np
import pytest

from pluribus import Training
from pluribus.sklearn import Deviation, EnsembleRegressor


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(200, 1))
    # The noise grows from left to right.
    y = X[:, 0] + (0.02 + 0.2 * (X[:, 0] + 1)) * rng.normal(size=200)
    training = Training(steps=100, lr=0.05)
    regressor = EnsembleRegressor(None, (16,), "deep_ensembles(members=2)", training, random_state=0)
    return regressor.fit(X[:100], y[:100]), X[100:], y[100:]


def test_deviation_is_that_of_predict(model):
    regressor, X, y = model
    deviation = Deviation(regressor).fit(X, y)
    np.testing.assert_array_equal(deviation.predict(X), regressor.predict(X, return_std=True)[1])


@pytest.mark.filterwarnings("ignore")  # MAPIE reads names that scikit-learn renamed
def test_mapie_makes_wider_intervals_where_the_ensemble_is_unsure(model):
    mapie = pytest.importorskip("mapie.regression")
    scores = pytest.importorskip("mapie.conformity_scores")
    regressor, X, y = model
    score = scores.ResidualNormalisedScore(residual_estimator=Deviation(regressor), prefit=True)
    conformal = mapie.SplitConformalRegressor(
        regressor, confidence_level=0.9, conformity_score=score, prefit=True
    )
    conformal.conformalize(X[:50], y[:50])
    _, intervals = conformal.predict_interval(X[50:])
    low, high = intervals[:, 0, 0], intervals[:, 1, 0]
    assert ((low <= y[50:]) & (y[50:] <= high)).mean() > 0.75
    width, right = high - low, X[50:, 0] > 0
    assert width[right].mean() > 1.3 * width[~right].mean()
