"""All metrics by name, and those that suit a prediction."""

from torch import Tensor

from pluribus.metrics import (
    calibration,
    discrimination,
    diversity,
    ood,
    regression,
    scoring,
    segmentation,
    selective,
    shift,
)
from pluribus.metrics.metric import Against, Metric
from pluribus.metrics.samples import flat, samples
from pluribus.prediction import Prediction

FILES = (
    *(scoring, discrimination, segmentation, calibration, selective),
    *(diversity, regression, ood, shift),
)

METRICS: dict[str, Metric] = {metric.name: metric for file in FILES for metric in file.ROWS}
"""All metrics by name, in the order of reports."""


def metrics_for(prediction: Prediction, against: Against = "target") -> list[Metric]:
    """Return the metrics that a prediction has, against its target or against one out of distribution."""
    wanted = [metric for metric in METRICS.values() if metric.against == against]
    return [metric for metric in wanted if metric.suits(prediction)]


def evaluate_all(prediction: Prediction, target: Tensor) -> dict[str, float]:
    """Compute all metrics of a prediction against its target, by name.

    >>> evaluate_all(pluribus.Point().prediction(torch.tensor([[1.0, 4.0]])), torch.tensor([2.0, 4.0]))
    {'ambiguity': 0.0, 'rmse': 0.7071067811865476, 'mae': 0.5}
    """
    # Flat once, and not once for each metric. Metrics of images need the pixels where they are.
    flattened = samples(prediction, target)
    found = {}
    for metric in metrics_for(prediction):
        pair = (prediction, target) if metric.dense else flattened
        found[metric.name] = metric(*pair)
    return found


def evaluate_ood(prediction: Prediction, out: Prediction) -> dict[str, float]:
    """Compute all metrics of a prediction against the same ensemble's out of distribution, by name."""
    # Flat once, and not once for each metric.
    prediction, out = flat(prediction), flat(out)
    return {metric.name: metric(prediction, out) for metric in metrics_for(prediction, "out")}
