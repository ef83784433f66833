"""Read a calibration from a saved folder. Files are untrusted: everything is checked."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from pluribus.calibration_record import (
    INFINITE,
    MAHALANOBIS,
    MOST_REFERENCE,
    SCORES,
    TENSORS,
    VERSION,
    Calibration,
)
from pluribus.errors import CheckpointError
from pluribus.schema import Either, Fields, Items, Mismatch, Named, Number, Optional, Schema, Text, Whole

REMEDY = "Calibrate and save the ensemble again."
ABOVE_ZERO = ("temperature", "variance_scale")
SHARES = ("level", "false_alarm")
QUANTILES = ("quantile", "threshold")
ROUNDING = 1e-6
"""Greatest distance of a sum of weights from one; they are stored in double precision."""
SHARE = Number(finite=True)
# Too few samples give a quantile of infinity.
QUANTILE = Optional(Either((Number(finite=True), Text(pattern=INFINITE, name=f'"{INFINITE}"'))))
SCHEMA: Schema = Fields(
    {
        "version": Whole(1, VERSION),
        "temperature": Number(finite=True),
        "variance_scale": Number(finite=True),
        "level": Optional(SHARE),
        "quantile": QUANTILE,
        "false_alarm": Optional(SHARE),
        "score": Text(most=100),
        "threshold": QUANTILE,
        "aurocs": Named(Number(finite=True)),
        "samples": Whole(),
        "notes": Items(Text(), most=100),
    }
)


def calibration_of(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Calibration:
    """Return the calibration that `to_dict` and `tensors` of a `Calibration` wrote.

    Raises:
        CheckpointError: A value is missing, unknown or out of range, or does not fit the others.
    """
    names = (*ABOVE_ZERO, *SHARES, *QUANTILES)
    try:
        SCHEMA.check(values, "calibration")
        numbers: dict[str, Any] = {name: _number(values[name]) for name in names}
        _check_numbers(numbers)
        _check_tensors(values["score"], tensors)
    except Mismatch as error:
        raise CheckpointError(f"{error}. {REMEDY}") from error
    fitted: dict[str, Any] = {name: tensor.double() for name, tensor in tensors.items()}
    return Calibration(
        **numbers,
        **fitted,
        score=values["score"],
        aurocs=values["aurocs"],
        samples=values["samples"],
        notes=tuple(values["notes"]),
    )


def _number(value: Any) -> Any:
    return math.inf if value == INFINITE else value


def _check_numbers(numbers: Mapping[str, float | None]) -> None:
    """Raise `Mismatch` where a number of a file is out of range."""
    for name in ABOVE_ZERO:
        value = numbers[name]
        if value is None or value <= 0:
            raise Mismatch(f"field calibration.{name} must be above 0, got {value}")
    for name in SHARES:
        share = numbers[name]
        if share is not None and not 0 < share < 1:
            raise Mismatch(f"field calibration.{name} must be above 0 and below 1, got {share}")


def _check_tensors(score: str, tensors: Mapping[str, Tensor]) -> None:
    """Raise `Mismatch` where the tensors of a file do not fit the score or one another."""
    if score and score != MAHALANOBIS and score not in SCORES:
        raise Mismatch(f"field calibration.score must be {MAHALANOBIS} or one of {', '.join(SCORES)}")
    for name, tensor in tensors.items():
        _check_floats(name, tensor)
    # Without a score there is nothing to refer to.
    expected = {"reference": 1} if score else {}
    if score == MAHALANOBIS:
        expected |= {"means": 2, "whitening": 2}
    if "weights" in tensors:
        expected |= {"weights": 1}
        _check_weights(tensors["weights"])
    came = {name: tensor.ndim for name, tensor in tensors.items()}
    if came != expected:
        raise Mismatch(f"tensors of calibration must have axes {expected}, got {came}")
    if score:
        _check_sizes(tensors)


def _check_sizes(tensors: Mapping[str, Tensor]) -> None:
    """Raise `Mismatch` where sizes of tensors do not fit one another."""
    if not 0 < len(tensors["reference"]) <= MOST_REFERENCE:
        raise Mismatch(f"tensor calibration.reference must have 1 to {MOST_REFERENCE} numbers")
    if "means" in tensors:
        features = tensors["means"].shape[1]
        if tensors["whitening"].shape != (features, features):
            raise Mismatch(f"tensor calibration.whitening must be {features} × {features}")


def _check_weights(weights: Tensor) -> None:
    """Raise `Mismatch` unless these are positive numbers that sum to one."""
    if not (weights > 0).all() or abs(weights.double().sum().item() - 1) > ROUNDING:
        raise Mismatch("tensor calibration.weights must be above 0 and sum to one")


def _check_floats(name: str, tensor: Tensor) -> None:
    if name not in TENSORS or not tensor.is_floating_point() or not tensor.isfinite().all():
        raise Mismatch(f"tensor calibration.{name} must be one of {', '.join(TENSORS)}, of finite floats")
