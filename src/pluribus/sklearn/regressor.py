"""An ensemble that predicts numbers, as an estimator of scikit-learn."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin
from torch import Tensor, nn

from pluribus.data.cells import Array
from pluribus.errors import InputError, SettingError
from pluribus.likelihood import Gaussian, Likelihood, Point, likelihood
from pluribus.method import Method
from pluribus.prediction import ContinuousPrediction
from pluribus.sklearn.estimator import EnsembleEstimator
from pluribus.training.settings import Training


class EnsembleRegressor(RegressorMixin, EnsembleEstimator):  # type: ignore[misc]  # has no types
    """Predict numbers and their uncertainty with an ensemble of networks.

    `EnsembleClassifier` describes the other parameters and the attributes.

    Args:
        likelihood: `gaussian`, where networks give a mean and a raw variance for each target, `point`, or a
            `Likelihood` of these kinds.

    Example:
        >>> from pluribus import Training
        >>> X = np.linspace(-1, 1, 50)[:, None]
        >>> model = EnsembleRegressor(training=Training(steps=50, lr=0.01), random_state=0).fit(X, X[:, 0])
        >>> mean, std = model.predict([[0.0], [9.0]], return_std=True)
        >>> std[1] > std[0]
        np.True_
    """

    def __init__(
        self,
        module: nn.Module | Callable[[int, int], nn.Module] | None = None,
        hidden: tuple[int, ...] = (64, 64),
        method: Method | str = "deep_ensembles(members=5)",
        training: Training | None = None,
        *,
        likelihood: str | Likelihood = "gaussian",
        calibrated: bool = False,
        level: float = 0.9,
        validation_fraction: float | None = None,
        standardize: bool = True,
        dtype: str = "float64",
        accelerator: str = "cpu",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.module = module
        self.hidden = hidden
        self.method = method
        self.training = training
        self.likelihood = likelihood
        self.calibrated = calibrated
        self.level = level
        self.validation_fraction = validation_fraction
        self.standardize = standardize
        self.dtype = dtype
        self.accelerator = accelerator
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train the ensemble.

        Args:
            X: Numbers `[count, features]`, or a DataFrame, which may have words, dates and blanks.
            y: Numbers `[count]` or `[count, targets]`.
            sample_weight: How much each sample counts, at least 0.
        """
        law = likelihood(self.likelihood)
        if not isinstance(law, Gaussian | Point):
            raise SettingError(f"likelihood must be gaussian or point, got {self.likelihood!r}.")
        values, y = self._read(X, y, multi_output=True, y_numeric=True)
        weights = self._read_weights(sample_weight, values)
        self._one_target = y.ndim == 1
        return self._train(values, self.to_targets(y), weights, law)

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return the mean of each sample, `[count]` or `[count, targets]`.

        Args:
            X: Inputs, as for `fit`.
            return_std: Return the standard deviation too: of the noise and of the members' disagreement.
        """
        prediction = self.predict_full(X)
        assert isinstance(prediction, ContinuousPrediction)
        mean = self._to_array(prediction.mean)
        return (mean, self._to_array(prediction.std)) if return_std else mean

    def predict_interval(self, X: Any) -> tuple[Array, Array]:
        """Return both ends of the calibrated interval of each sample.

        Raises:
            InputError: The estimator is not calibrated.
        """
        prediction = self.predict_full(X)
        assert isinstance(prediction, ContinuousPrediction)
        low, high = prediction.interval()
        return self._to_array(low), self._to_array(high)

    def to_targets(self, y: Array) -> Tensor:
        """Return numbers `[count, targets]`."""
        if y.ndim not in (1, 2) or y.dtype.kind not in "biuf":
            raise InputError(f"y must hold numbers [count] or [count, targets], got {y.dtype} {y.shape}.")
        return torch.from_numpy(y.astype(np.float64).reshape(len(y), -1))

    def _to_array(self, values: Tensor) -> Array:
        """Return a summary `[count, targets]` in the shape of the training targets."""
        found: Array = values.cpu().double().numpy()
        return found[:, 0] if self._one_target else found
