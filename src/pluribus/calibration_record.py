"""Calibration: the numbers that `ensemble.calibrate` fitted on validation data, kept with the ensemble."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

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

TENSORS = ("means", "whitening", "reference", "weights")


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
        reference: Scores of validation samples, ascending, at most 10,000; `pluribus monitor` tests against
            them.
        weights: How much each member counts, `[members]`, in place of the method's weights; None keeps these.
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
    weights: Tensor | None = None
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
        """Return all but the tensors as a value that JSON can hold; `calibration_file` reads it."""
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


def thinned(scores: Tensor) -> Tensor:
    """Return at most `MOST_REFERENCE` scores, ascending: a random part of them, the same at every call."""
    ascending = scores.detach().to("cpu", torch.float64).flatten().sort().values
    if len(ascending) <= MOST_REFERENCE:
        return ascending
    # A random part of exchangeable scores is exchangeable with new ones, which the monitor of drift needs.
    # Evenly spaced ones would not be: they always hold the greatest.
    generator = torch.Generator().manual_seed(0)
    places = torch.randperm(len(ascending), generator=generator)[:MOST_REFERENCE]
    return ascending[places.sort().values]
