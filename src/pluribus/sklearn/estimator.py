"""The common part of both estimators: parameters, training, predictions of the members."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    check_X_y,
    validate_data,
)
from torch import Tensor, nn

from pluribus.backbones.mlp import mlp
from pluribus.conversion import convert
from pluribus.data.cells import Array
from pluribus.data.columns import Columns
from pluribus.data.scaling import UNSCALED, Scaling
from pluribus.data.signature import Signature
from pluribus.data.split import Split
from pluribus.data.splits import hold_out
from pluribus.data.task import Task, in_units
from pluribus.ensemble import Ensemble
from pluribus.errors import SettingError
from pluribus.likelihood import Likelihood
from pluribus.method import Method
from pluribus.prediction import Prediction
from pluribus.ranges import check
from pluribus.sklearn.features import check_table, encode_table, is_table, learn_scaling, learn_table, scale
from pluribus.sklearn.nested import NESTED, change_settings, list_settings, read_settings, split_nested
from pluribus.training.loop import make_fabric, train
from pluribus.training.settings import Training

CALIBRATION_SHARE = 0.2
"""Share of the samples that is held out to calibrate by, where the user names none."""
DTYPES = {"float64": torch.float64, "float32": torch.float32}
MOST_SEED = 2**31 - 1


class EnsembleEstimator(BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """An ensemble as an estimator of scikit-learn; `EnsembleClassifier` describes the parameters."""

    module: nn.Module | Callable[[int, int], nn.Module] | None
    hidden: tuple[int, ...]
    method: Method | str
    training: Training | None
    calibrated: bool
    level: float
    validation_fraction: float | None
    standardize: bool
    dtype: str
    accelerator: str
    random_state: Any
    verbose: bool
    ensemble_: Ensemble
    signature_: Signature
    columns_: Columns | None
    history_: list[dict[str, float]]
    n_iter_: int

    @abstractmethod
    def to_targets(self, y: Array) -> Tensor:
        """Return targets as the likelihood of the fitted ensemble takes them, in units of the data."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with `deep` also the settings of `method` and `training` by nested names."""
        params: dict[str, Any] = super().get_params(deep)
        if deep:
            for name in NESTED:
                params |= list_settings(name, params[name])
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, and settings such as `method__members` and `training__lr`."""
        plain, nested = split_nested(params)
        super().set_params(**plain)
        for name, changes in nested.items():
            setattr(self, name, change_settings(name, getattr(self, name), changes))
        return self

    def calibrate(self, X: Any, y: Any, *, level: float = 0.9, false_alarm: float = 0.05) -> Self:
        """Fit probabilities, sets or intervals, and the threshold for strange samples on data not trained on.

        Args:
            X: Inputs, as for `fit`.
            y: Their targets.
            level: Share of samples whose set or interval holds the truth, in (0, 1).
            false_alarm: Share of samples like these that are flagged as strange, in (0, 1).
        """
        check_is_fitted(self, "ensemble_")
        target = self._scaled_targets(self.to_targets(np.asarray(y)))
        self.ensemble_.calibrate((self._to_inputs(X), target), level=level, false_alarm=false_alarm)
        return self

    def predict_full(self, X: Any) -> Prediction:
        """Return the prediction with all members and uncertainties, in the units of the targets.

        Args:
            X: Inputs, as for `fit`.
        """
        check_is_fitted(self, "ensemble_")
        prediction = self.ensemble_.predict(self._to_inputs(X))
        return in_units(prediction, self.signature_.target_scaling)

    def export(self, path: str | Path, format: str = "onnx") -> Path:
        """Write the fitted ensemble as one file in float32, with its scaling, columns and classes beside it.

        Args:
            path: The file.
            format: `onnx`, `pt2` or `openvino`.
        """
        check_is_fitted(self, "ensemble_")
        # The estimator goes on in its own precision.
        ensemble = copy.deepcopy(self.ensemble_).float()
        return ensemble.export(path, format, signature=self.signature_)

    def _read(self, X: Any, y: Any, **checks: Any) -> tuple[Array, Array]:
        """Return numbers before scaling and targets, checked; learn the columns of a table."""
        checks |= {"dtype": np.float64, "allow_nd": self.module is not None}
        self.columns_ = None
        found: tuple[Array, Array]
        if is_table(X):
            validate_data(self, X, skip_check_array=True)
            self.columns_ = learn_table(X)
            found = check_X_y(encode_table(self.columns_, X), y, **checks)
        else:
            found = validate_data(self, X, y, **checks)
        return found

    def _read_weights(self, sample_weight: Any, values: Array) -> Array | None:
        """Return the weights of the samples, or None."""
        if sample_weight is None:
            return None
        weights: Array = _check_sample_weight(
            sample_weight, values, dtype=np.float64, ensure_non_negative=True
        )
        if not weights.any():
            raise SettingError("sample_weight must have a weight above 0, got zeros alone.")
        return weights

    def _to_inputs(self, X: Any) -> Tensor:
        """Return inputs of a fitted estimator as its ensemble takes them."""
        if self.columns_ is not None:
            check_table(X)
            validate_data(self, X, skip_check_array=True, reset=False)
            values = encode_table(self.columns_, X)
            check_array(values)
        else:
            allow_nd = self.module is not None
            values = validate_data(self, X, reset=False, dtype=np.float64, allow_nd=allow_nd)
        return self._tensor(scale(values, self.signature_.scaling))

    def _tensor(self, values: Array) -> Tensor:
        check("dtype", self.dtype, choices=DTYPES)
        return torch.from_numpy(np.ascontiguousarray(values)).to(DTYPES[self.dtype])

    def _scaled_targets(self, target: Tensor) -> Tensor:
        """Return targets as the network learnt them; classes as they are."""
        if not target.is_floating_point():
            return target
        scaling = self.signature_.target_scaling
        return self._tensor(scale(target.double().numpy(), scaling))

    def _input_scaling(self, values: Array, weights: Array | None) -> Scaling:
        if self.columns_ is not None:
            # One-hot numbers and indicators of blanks stay as they are.
            means, deviations = self.columns_.means, self.columns_.deviations
            return Scaling(torch.from_numpy(means), torch.from_numpy(deviations))
        return learn_scaling(values, weights) if self.standardize else UNSCALED

    def _train(
        self,
        values: Array,
        target: Tensor,
        weights: Array | None,
        likelihood: Likelihood,
        class_names: tuple[str, ...] = (),
    ) -> Self:
        """Train an ensemble on inputs before scaling and targets in units of the data."""
        check("calibrated", self.calibrated, bool)
        check("verbose", self.verbose, bool)
        check("standardize", self.standardize, bool)
        seed = int(check_random_state(self.random_state).randint(MOST_SEED))
        if weights is not None:
            # A sample that does not count must not count in means, sizes and orders of the samples either.
            counted = weights > 0
            values, target, weights = values[counted], target[torch.from_numpy(counted)], weights[counted]
        task = self._task(values, target, weights, likelihood, class_names, seed)
        # Fitting must not change the random numbers of the program around it.
        with torch.random.fork_rng(devices=[]):
            self._fit_task(task, seed)
        return self

    def _task(
        self,
        values: Array,
        target: Tensor,
        weights: Array | None,
        likelihood: Likelihood,
        class_names: tuple[str, ...],
        seed: int,
    ) -> Task:
        """Return the samples, scaled, as a task; a part is held out for validation if wanted."""
        scaling, target_scaling = self._input_scaling(values, weights), UNSCALED
        if target.is_floating_point():
            target_scaling = learn_scaling(target.numpy(), weights)
            target = self._tensor(scale(target.numpy(), target_scaling))
        split = Split(self._tensor(scale(values, scaling)), target, weights=weights)
        count = round(self._share_held_out() * len(split))
        train_split, validation = split, split.take(torch.arange(0))
        if count:
            train_split, validation = hold_out(split, "validation", count, seed)
        return Task(
            type(self).__name__,
            train_split,
            validation,
            # A task must have test samples; nothing here reads them.
            test=train_split,
            likelihood=likelihood,
            classes=len(class_names) or None,
            class_names=class_names,
            scaling=scaling,
            target_scaling=target_scaling,
            feature_names=() if self.columns_ is None else self.columns_.features,
            columns=self.columns_,
        )

    def _share_held_out(self) -> float:
        share = self.validation_fraction
        check("validation_fraction", share, float, at_least=0, below=1, optional=True)
        if share is None:
            return CALIBRATION_SHARE if self.calibrated else 0.0
        if self.calibrated and share == 0:
            raise SettingError("validation_fraction must be above 0 where calibrated=True, got 0. Use 0.2.")
        return share

    def _fit_task(self, task: Task, seed: int) -> None:
        """Convert the network, train and calibrate it, and keep the result."""
        torch.manual_seed(seed)
        example = task.train.x[:2].float()
        ensemble = convert(self._network(task), self.method, task.likelihood, example=example, seed=seed)
        ensemble.to(DTYPES[self.dtype])
        precision = "64-true" if self.accelerator != "cpu" and self.dtype == "float64" else "32-true"
        self.history_ = train(
            ensemble,
            task,
            self._training(ensemble.method, len(task.train), seed),
            fabric=make_fabric(self.accelerator, precision=precision),
            show=self.verbose,
            calibrate=False,
        )
        if self.calibrated:
            ensemble.calibrate(task, level=self.level)
        self.ensemble_, self.n_iter_ = ensemble, len(self.history_)
        self.signature_ = Signature.of(task)

    def _training(self, method: Method, samples: int, seed: int) -> Training:
        """Return the user's training, or the default one as the method wants it."""
        training = read_settings("training", self.training)
        if not isinstance(training, Training):
            raise SettingError(f"training must be a Training or None, got {self.training!r}.")
        if self.training is None:
            training = training.following(method.recipe(), samples)
        return replace(training, seed=seed)

    def _network(self, task: Task) -> nn.Module | Callable[[], nn.Module]:
        """Return the user's module, or a factory of networks for this many inputs and outputs."""
        inputs = int(np.prod(task.input_shape))
        if self.module is None:
            return partial(mlp, inputs, task.outputs, self.hidden, codes=task.codes)
        if isinstance(self.module, nn.Module):
            return self.module
        if not callable(self.module):
            raise SettingError(
                "module must be an nn.Module, a function of the numbers of inputs and outputs that returns "
                f"one, or None, got {self.module!r}."
            )
        return partial(self.module, inputs, task.outputs)
