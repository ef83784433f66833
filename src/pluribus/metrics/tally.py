"""Tally: metrics of predictions that come batch by batch, in bounded memory.

Up to `MOST_NUMBERS` outputs of members are kept, and metrics are computed from all of them at once. Beyond,
every position of a prediction is a sample, and every second one is dropped, again and again: those that stay
are evenly spaced. Metrics that are means of samples are summed over all samples before any is dropped, and
stay exact. Others, such as calibration errors and areas under curves, are computed from the kept samples.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.likelihood import Bernoulli, Categorical, Likelihood, fill_missing
from pluribus.metrics.metric import Metric
from pluribus.metrics.registry import evaluate_all, metrics_for
from pluribus.metrics.samples import flat, present_numbers, samples
from pluribus.prediction import ContinuousPrediction, Prediction

MOST_NUMBERS = 2**27
"""Outputs of members that are kept: half a GiB in float32."""
MEANS = (
    *("accuracy", "top5", "nll", "brier", "disagreement", "mutual_information", "ambiguity"),
    *("mae", "gaussian_nll", "log_predictive_density", "coverage_95", "width_95", "crps"),
)
"""Metrics that are means over samples."""
ROOTS = ("rmse",)
"""Metrics that are roots of such means."""


@dataclass(frozen=True, eq=False)
class Part:
    """Predictions of one batch that are kept.

    Args:
        prediction: Of its samples, or of its positions.
        target: Their targets; None for data out of distribution.
        numbers: Numbers of its positions among all, `[positions]`; None before positions are dropped.
    """

    prediction: Prediction
    target: Tensor | None
    numbers: Tensor | None = None


@final
class Tally:
    """Accumulate predictions and their targets.

    Args:
        most: Outputs of members that are kept.
    """

    def __init__(self, most: int = MOST_NUMBERS) -> None:
        self.most = most
        self.parts: list[Part] = []
        self.numbers = 0
        self.positions = 0
        self.stride = 1
        self.sums: dict[str, float] = {}
        self.counted = 0

    @property
    def is_thinned(self) -> bool:
        """Return whether positions were dropped."""
        return self.stride > 1

    def add(self, prediction: Prediction, target: Tensor | None = None) -> None:
        """Add the predictions of a batch.

        Args:
            prediction: Of its samples.
            target: Their targets, as `samples` takes them; None for data out of distribution.
        """
        part = Part(prediction, target)
        if self.is_thinned:
            part = self._flattened(part)
        self.parts.append(part)
        self.numbers += part.prediction.members.numel()
        if self.numbers > self.most and not self.is_thinned:
            self.parts = [self._flattened(one) for one in self.parts]
        while self.numbers > self.most and any(len(one.prediction) > 1 for one in self.parts):
            self._thin()

    @property
    def prediction(self) -> Prediction:
        """Return the predictions that are kept as one; positions as samples where shapes differ."""
        return self._joined()[0]

    @property
    def target(self) -> Tensor:
        """Return the targets that are kept as one."""
        target = self._joined()[1]
        if target is None:
            raise InputError("metrics need targets, got predictions alone.")
        return target

    def metrics(self) -> dict[str, float]:
        """Compute all metrics against the targets, by name."""
        found = evaluate_all(self.prediction, self.target)
        exact = {name: self._mean(name) for name in self.sums}
        return {name: exact.get(name, value) for name, value in found.items()}

    def compute(self, metric: Metric) -> float:
        """Compute one metric against the targets."""
        if metric.name in self.sums:
            return self._mean(metric.name)
        return metric(self.prediction, self.target)

    def _mean(self, name: str) -> float:
        mean = self.sums[name] / self.counted
        return math.sqrt(mean) if name in ROOTS else mean

    def _joined(self) -> tuple[Prediction, Tensor | None]:
        if not self.parts:
            raise InputError("a split must have at least one sample, got none.")
        parts: Sequence[Part] = self.parts
        shapes = {one.prediction.members.shape[2:] for one in parts}
        if len(shapes) > 1:
            # Texts and images of different lengths and sizes.
            parts = [_positions(one) for one in parts]
        predictions = [one.prediction for one in parts]
        targets = [one.target for one in parts if one.target is not None]
        joined = type(predictions[0]).concatenate(predictions)
        return joined, torch.cat(targets) if targets else None

    def _flattened(self, part: Part) -> Part:
        """Return a part by positions, with their numbers, after its samples were summed."""
        self._sum(part)
        found = _positions(part)
        count = len(found.prediction)
        numbers = torch.arange(self.positions, self.positions + count)
        self.positions += count
        return _kept(Part(found.prediction, found.target, numbers), self.stride)

    def _sum(self, part: Part) -> None:
        """Add the means of a part to the sums, by the number of its positions."""
        if part.target is None:
            return
        prediction, target = samples(part.prediction, part.target)
        self.counted += target.numel()
        for metric in metrics_for(prediction):
            if metric.name not in (*MEANS, *ROOTS):
                continue
            value = metric(prediction, target)
            value = value**2 if metric.name in ROOTS else value
            self.sums[metric.name] = self.sums.get(metric.name, 0.0) + value * target.numel()

    def _thin(self) -> None:
        """Drop every second position."""
        self.stride *= 2
        self.parts = [_kept(one, self.stride) for one in self.parts]
        self.parts = [one for one in self.parts if len(one.prediction)]
        self.numbers = sum(one.prediction.members.numel() for one in self.parts)


def hard_targets(y: Tensor, likelihood: Likelihood) -> Tensor:
    """Return targets that metrics can count: the likeliest class or answer in place of probabilities."""
    if not y.is_floating_point():
        return y
    if isinstance(likelihood, Categorical):
        return y.argmax(1)
    return y.round() if isinstance(likelihood, Bernoulli) else y


def _positions(part: Part) -> Part:
    """Return a part with every position of its predictions as a sample."""
    prediction, target = part.prediction, part.target
    if part.numbers is not None:
        return part
    if isinstance(prediction, ContinuousPrediction):
        present = torch.ones(prediction.means.shape[1:], dtype=torch.bool, device=prediction.means.device)
        if target is not None:
            target = target.reshape(present.shape)
            known = fill_missing(target)[1]
            present = present if known is None else known
            target = target[present]
        return Part(present_numbers(prediction, present), target)
    if target is None:
        return Part(flat(prediction), None)
    return Part(*samples(prediction, target))


def _kept(part: Part, stride: int) -> Part:
    """Return the positions of a part whose numbers are multiples of the stride."""
    assert part.numbers is not None
    if stride == 1:
        return part
    mask = part.numbers % stride == 0
    there = mask.to(part.prediction.members.device)
    target = None if part.target is None else part.target[there]
    return Part(part.prediction[there], target, part.numbers[mask])
