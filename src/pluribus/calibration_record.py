"""Calibration: the numbers that `ensemble.calibrate` fitted on validation data, kept with the ensemble."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pluribus.errors import CheckpointError
from pluribus.schema import Either, Fields, Items, Mismatch, Named, Number, Optional, Schema, Text, Whole

VERSION = 1
MAHALANOBIS = "mahalanobis"
SCORES = {
    "max_probability": ("confidence", -1.0),
    "max_logit": ("max_logit", -1.0),
    "entropy": ("entropy", 1.0),
    "mutual_information": ("mutual_information", 1.0),
    "variation_ratio": ("variation_ratio", 1.0),
    "variance": ("variance", 1.0),
    "epistemic_variance": ("epistemic", 1.0),
}
"""Out-of-distribution scores by name: a summary of the prediction, and its sign, so that strange is high."""
MOST_REFERENCE = 10_000
"""Most scores of validation samples that are kept."""
INFINITE = "inf"
"""Infinity in files: JSON has none."""

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
TENSORS = ("means", "whitening", "reference")


@dataclass(frozen=True, eq=False)
class Calibration:
    """Corrections of predictions, all plain numbers and tensors of float64 on the CPU.

    Attributes:
        temperature: Divides the logarithms of the mean probabilities, above 0; 1 changes nothing.
        variance_scale: Multiplies the variance of a Gaussian mixture around its mean, above 0.
        level: Share of samples whose set or interval holds the truth, in (0, 1); None without sets.
        quantile: Classes with 1 − p of at most this are in the set. An interval is widened at both ends by
            this many standard deviations; without a model of noise, by this many units of the target.
        false_alarm: Share of samples like those of validation that are flagged, in (0, 1).
        score: Name of the out-of-distribution score: one of `SCORES`, or `mahalanobis`.
        threshold: Samples whose score is greater are flagged; None without a score.
        means: Of `mahalanobis`: mean outputs of each class, `[classes, features]`.
        whitening: Of `mahalanobis`: the distance is that of `outputs @ whitening`, `[features, features]`.
        reference: Scores of validation samples, ascending, at most 10,000.
        aurocs: How well each score told altered validation samples from the others, by name.
        samples: How many validation samples there were.
        notes: Decisions that a user should know, in whole sentences.
        unit: One unit of the network's targets in the units of the prediction; `Task.in_units` sets it.
    """

    temperature: float = 1.0
    variance_scale: float = 1.0
    level: float | None = None
    quantile: float | None = None
    false_alarm: float | None = None
    score: str = ""
    threshold: float | None = None
    means: Tensor | None = None
    whitening: Tensor | None = None
    reference: Tensor | None = None
    aurocs: Mapping[str, float] = field(default_factory=dict)
    samples: int = 0
    notes: tuple[str, ...] = ()
    unit: Tensor | None = None

    def __repr__(self) -> str:
        """Return the numbers; tensors are left out."""
        shown = [f"{name}={value:.4g}" for name, value in self._numbers().items() if value is not None]
        if self.score:
            shown.append(f"score={self.score!r}")
        return f"Calibration({', '.join(shown)}, samples={self.samples})"

    def _numbers(self) -> dict[str, float | None]:
        return {
            "temperature": self.temperature,
            "variance_scale": self.variance_scale,
            "level": self.level,
            "quantile": self.quantile,
            "false_alarm": self.false_alarm,
            "threshold": self.threshold,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all but the tensors as a value that JSON can hold and that `SCHEMA` describes."""
        numbers = {name: INFINITE if value == math.inf else value for name, value in self._numbers().items()}
        return {
            "version": VERSION,
            **numbers,
            "score": self.score,
            "aurocs": dict(self.aurocs),
            "samples": self.samples,
            "notes": list(self.notes),
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that there are, by name."""
        found = {}
        for name in TENSORS:
            tensor = getattr(self, name)
            if tensor is not None:
                found[name] = tensor
        return found

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "Calibration":
        """Return the calibration that `to_dict` and `tensors` wrote. Both come from a file and are checked.

        Raises:
            CheckpointError: A value is missing, unknown or out of range, or does not fit the others.
        """
        try:
            SCHEMA.check(values, "calibration")
            numbers: dict[str, Any] = {name: _number(values[name]) for name in cls()._numbers()}
            _check_numbers(numbers)
            _check_tensors(values["score"], tensors)
        except Mismatch as error:
            raise CheckpointError(f"{error}. Calibrate and save the ensemble again.") from error
        fitted: dict[str, Any] = {name: tensor.double() for name, tensor in tensors.items()}
        return cls(
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
    for name in ("temperature", "variance_scale"):
        value = numbers[name]
        if value is None or value <= 0:
            raise Mismatch(f"field calibration.{name} must be above 0, got {value}")
    for name in ("level", "false_alarm"):
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


def _check_floats(name: str, tensor: Tensor) -> None:
    if name not in TENSORS or not tensor.is_floating_point() or not tensor.isfinite().all():
        raise Mismatch(f"tensor calibration.{name} must be one of {', '.join(TENSORS)}, of finite floats")


def thinned(scores: Tensor) -> Tensor:
    """Return at most `MOST_REFERENCE` scores, ascending, evenly spaced from the least to the greatest."""
    ascending = scores.detach().to("cpu", torch.float64).flatten().sort().values
    if len(ascending) <= MOST_REFERENCE:
        return ascending
    # float32 would round positions above 16 million.
    positions = torch.linspace(0, len(ascending) - 1, MOST_REFERENCE, dtype=torch.float64)
    return ascending[positions.round().long()]
