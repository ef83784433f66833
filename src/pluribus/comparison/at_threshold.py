"""Sensitivity and specificity of a run at a threshold that was chosen on its validation data."""

from torch import Tensor

from pluribus.metrics.bootstrap import Interval
from pluribus.metrics.threshold import Threshold
from pluribus.prediction import Prediction

PREFIX = "threshold"


def at_threshold(
    validation: Prediction, truth: Tensor, test: Prediction, target: Tensor
) -> tuple[dict[str, float], dict[str, Interval]]:
    """Return the threshold and the rates on test data, and their intervals; nothing unless of two outcomes.

    Args:
        validation: Predictions of validation data.
        truth: Their targets.
        test: Predictions of test data.
        target: Their targets.
    """
    found = Threshold.fit(validation, truth)
    if found is None:
        return {}, {}
    rates = {f"{PREFIX}_{name}": value for name, value in found.rates(test, target).items()}
    intervals = {f"{PREFIX}_{name}": ends for name, ends in found.intervals(test, target).items()}
    return {PREFIX: found.value, **rates}, intervals
