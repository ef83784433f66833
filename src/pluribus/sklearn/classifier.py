"""An ensemble that predicts classes, as an estimator of scikit-learn."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor, nn

from pluribus.data.cells import Array
from pluribus.errors import InputError
from pluribus.likelihood import Categorical
from pluribus.method import Method
from pluribus.prediction import CategoricalPrediction
from pluribus.sklearn.estimator import EnsembleEstimator
from pluribus.training.settings import Training


class EnsembleClassifier(ClassifierMixin, EnsembleEstimator):  # type: ignore[misc]  # has no types
    """Predict classes with an ensemble of networks.

    Args:
        module: A network, or a function `(inputs, outputs)` that returns one; None builds a fully connected
            network with `hidden` layers. A network has as many outputs as there are classes; the factory of
            an `EnsembleRegressor` returns a mean and a raw variance for each target.
        hidden: Widths of the hidden layers where there is no `module`.
        method: The kind of ensemble, a `Method` or text such as `"packed_ensembles(alpha=2)"`. Its settings
            are parameters too: `method__members`.
        training: Length and optimizer, a `Training`; None trains as the method wants. Its settings are
            parameters too: `training__epochs`, `training__lr`. The seed is that of `random_state`.
        calibrated: Hold out samples and calibrate on them; `calibrate` does it later, on other data.
        level: Share of samples whose set or interval holds the truth, in (0, 1).
        validation_fraction: Share of the samples held out to choose the weights and to calibrate by, in
            [0, 1); None is 0.2 if `calibrated`, else 0.
        standardize: Scale each feature, or each channel of images, to mean 0 and variance 1.
        dtype: `float64`, as scikit-learn computes, or `float32`, which is faster for large networks.
        accelerator: `cpu`, `gpu` or `auto`, as Lightning Fabric knows them.
        random_state: A number for the same result every time, a `RandomState`, or None.
        verbose: Show progress.

    Attributes:
        classes_: The classes in order.
        ensemble_: The trained `Ensemble`, whose inputs are scaled.
        columns_: What became of each column of a DataFrame with words, dates or blanks; else None.
        signature_: Scaling, columns and classes, as exported files have them.
        history_: One row for each epoch of training.
        n_iter_: Epochs of training.
        n_features_in_: How many features there are.
        feature_names_in_: Their names, where X was a DataFrame.

    Example:
        >>> from pluribus import Training
        >>> X, y = np.random.default_rng(0).normal(size=(60, 2)), np.repeat(["a", "b"], 30)
        >>> X[30:] += 5
        >>> model = EnsembleClassifier(training=Training(steps=20, lr=0.01), random_state=0).fit(X, y)
        >>> model.predict([[0.0, 0.0], [5.0, 5.0]])
        array(['a', 'b'], dtype='<U1')
        >>> model.predict_full(X).mutual_information.shape
        torch.Size([60])
    """

    classes_: Array

    def __init__(
        self,
        module: nn.Module | Callable[[int, int], nn.Module] | None = None,
        hidden: tuple[int, ...] = (64, 64),
        method: Method | str = "deep_ensembles(members=5)",
        training: Training | None = None,
        *,
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
        self.calibrated = calibrated
        self.level = level
        self.validation_fraction = validation_fraction
        self.standardize = standardize
        self.dtype = dtype
        self.accelerator = accelerator
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train the ensemble.

        Args:
            X: Numbers `[count, features]`, or a DataFrame, which may have words, dates and blanks.
            y: The class of each sample.
            sample_weight: How much each sample counts, at least 0.
        """
        values, y = self._read(X, y)
        check_classification_targets(y)
        weights = self._read_weights(sample_weight, values)
        counted = y if weights is None else y[weights > 0]
        self.classes_ = np.unique(counted)
        if len(self.classes_) < 2:
            raise InputError(f"y must hold at least two classes, got one class, {str(self.classes_[0])!r}.")
        # Samples of a class without weight are left out; any number does for them.
        numbers = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        names = tuple(map(str, self.classes_))
        return self._train(values, torch.from_numpy(numbers), weights, Categorical(), names)

    def predict(self, X: Any) -> Array:
        """Return the most probable class of each sample, `[count]`."""
        labels = self._classes(X).labels.cpu().numpy()
        found: Array = self.classes_[labels]
        return found

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, `[count, classes]`; calibrated where the estimator is."""
        probabilities = self._classes(X).probabilities.cpu().double().numpy()
        # In float32 the sum may differ from 1 by more than users of scikit-learn expect.
        found: Array = probabilities / probabilities.sum(axis=1, keepdims=True)
        return found

    def to_targets(self, y: Array) -> Tensor:
        """Return the numbers of classes; raise for a class that was not trained on."""
        unknown = sorted(set(np.unique(y)) - set(self.classes_))
        if unknown:
            raise InputError(f"y must hold the classes of training, got the class {str(unknown[0])!r}.")
        return torch.from_numpy(np.searchsorted(self.classes_, y))

    def _classes(self, X: Any) -> CategoricalPrediction:
        prediction = self.predict_full(X)
        assert isinstance(prediction, CategoricalPrediction)
        return prediction
