"""Tally: metrics of predictions that come batch by batch, in bounded memory.

Up to `MOST_NUMBERS` outputs of members are kept, of dense predictions `MOST_DENSE`, and metrics are computed
from all of them at once. Beyond, every position of a prediction is a sample, and every second one is dropped,
again and again: those that stay are evenly spaced. Metrics that are means of samples are summed over all
samples before any is dropped, and stay exact. Others, such as calibration errors and areas under curves, are
computed from the kept samples.
"""

import math
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.metrics.metric import Metric, is_dense
from pluribus.metrics.positions import Part, by_position, thinned
from pluribus.metrics.registry import METRICS, evaluate_all, metrics_for
from pluribus.metrics.samples import samples
from pluribus.prediction import Prediction

MOST_NUMBERS = 2**26
"""Outputs of members that are kept: a quarter GiB in float32."""
MOST_DENSE = 2**24
"""The same where every position has outputs, which are much alike. Metrics take 60 bytes for each: 1 GB."""
MEANS = (
    *("accuracy", "top5", "nll", "brier", "disagreement", "mutual_information", "ambiguity"),
    *("mae", "gaussian_nll", "log_predictive_density", "coverage_95", "width_95", "crps"),
)
"""Metrics that are means over samples."""
IMAGES = ("dice", "iou")
"""Metrics that are means over the images that have one."""
ROOTS = ("rmse",)
"""Metrics that are roots of such means."""


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
        self.counts: dict[str, int] = {}

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
        if is_dense(prediction):
            self.most = min(self.most, MOST_DENSE)
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
        return found | {name: self._mean(name) for name in self.sums}

    def compute(self, metric: Metric) -> float:
        """Compute one metric against the targets."""
        if metric.name in self.sums:
            return self._mean(metric.name)
        return metric(self.prediction, self.target)

    def _mean(self, name: str) -> float:
        count = self.counts[name]
        mean = self.sums[name] / count if count else math.nan
        return math.sqrt(mean) if name in ROOTS else mean

    def _joined(self) -> tuple[Prediction, Tensor | None]:
        if not self.parts:
            raise InputError("a split must have at least one sample, got none.")
        parts: Sequence[Part] = self.parts
        shapes = {one.prediction.members.shape[2:] for one in parts}
        if len(shapes) > 1:
            # Texts and images of different lengths and sizes.
            parts = [by_position(one) for one in parts]
        predictions = [one.prediction for one in parts]
        targets = [one.target for one in parts if one.target is not None]
        joined = type(predictions[0]).concatenate(predictions)
        return joined, torch.cat(targets) if targets else None

    def _flattened(self, part: Part) -> Part:
        """Return a part by positions, with their numbers, after its samples were summed."""
        self._sum(part)
        found = by_position(part)
        count = len(found.prediction)
        numbers = torch.arange(self.positions, self.positions + count)
        self.positions += count
        return thinned(Part(found.prediction, found.target, numbers), self.stride)

    def _sum(self, part: Part) -> None:
        """Add the means of a part to the sums, by the number of its positions."""
        if part.target is None:
            return
        prediction, target = samples(part.prediction, part.target)
        for metric in metrics_for(prediction):
            if metric.name in (*MEANS, *ROOTS):
                value = metric(prediction, target)
                self._count(metric.name, value**2 if metric.name in ROOTS else value, target.numel())
        if is_dense(part.prediction):
            for image in range(len(part.prediction)):
                one, truth = part.prediction[image], part.target[image : image + 1]
                for name in IMAGES:
                    self._count(name, METRICS[name](one, truth), 1)

    def _count(self, name: str, value: float, count: int) -> None:
        """Add the mean of so many samples; NaN stands for none."""
        counts = not math.isnan(value)
        self.sums[name] = self.sums.get(name, 0.0) + (value * count if counts else 0.0)
        self.counts[name] = self.counts.get(name, 0) + (count if counts else 0)

    def _thin(self) -> None:
        """Drop every second position."""
        self.stride *= 2
        self.parts = [thinned(one, self.stride) for one in self.parts]
        self.parts = [one for one in self.parts if len(one.prediction)]
        self.numbers = sum(one.prediction.members.numel() for one in self.parts)
