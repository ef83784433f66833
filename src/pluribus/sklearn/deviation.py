"""The standard deviation of a regressor as an estimator, for tools that take a model of the residuals."""

from typing import Any, Self, final

from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from pluribus.data.cells import Array
from pluribus.sklearn.regressor import EnsembleRegressor


@final
class Deviation(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Predict the standard deviation of a fitted `EnsembleRegressor`.

    MAPIE makes intervals of it that are wider where the ensemble is unsure:
    `ResidualNormalisedScore(residual_estimator=Deviation(model), prefit=True)`.

    Args:
        regressor: The fitted regressor.
    """

    def __init__(self, regressor: EnsembleRegressor) -> None:
        self.regressor = regressor

    def fit(self, X: Any, y: Any) -> Self:
        """Return self; the regressor is fitted already."""
        check_is_fitted(self.regressor)
        return self

    def predict(self, X: Any) -> Array:
        """Return the standard deviation of each sample, `[count]`."""
        _, deviation = self.regressor.predict(X, return_std=True)
        return deviation

    @property
    def n_features_in_(self) -> int:
        """How many features the regressor has; MAPIE reads it to know that this is fitted."""
        features: int = self.regressor.n_features_in_
        return features

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self.regressor, "ensemble_")
