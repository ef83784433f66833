"""Measure an ensemble on validation data, raw and calibrated. No trial of a search sees test data."""

from dataclasses import replace

import torch
from torch import Generator

from pluribus.calibration.fit import SEED
from pluribus.comparison.calibrated import SCALED, scaled_metrics
from pluribus.comparison.evaluation import measure_split
from pluribus.data.task import Task
from pluribus.ensemble import Ensemble
from pluribus.errors import SettingError


def without_test(task: Task) -> Task:
    """Return a task whose test data is its validation data, so that nothing else can be looked at.

    Raises:
        SettingError: there is no validation data.
    """
    if not len(task.validation):
        raise SettingError(
            f"a search chooses by validation data, but the task {task.name} has none. "
            "Give it some, such as a tenth of the training data."
        )
    return replace(task, test=task.validation, shifted={}, ood={}, missing={})


def measure_validation(ensemble: Ensemble, task: Task) -> tuple[dict[str, float], dict[str, float]]:
    """Return the metrics on validation data, and those after calibration as `scaled_<name>`.

    Args:
        ensemble: In eval mode; without a calibration there are no calibrated metrics.
        task: Data with validation samples.
    """
    tally = measure_split(ensemble, task, task.validation)
    if ensemble.calibration is None:
        return tally.metrics(), {}
    calibration = replace(ensemble.calibration, unit=task.target_scaling.std)
    prediction, target = tally.prediction, tally.target
    # The first half of the same order gave the temperature, and would flatter it. Streams are read in parts.
    if not task.validation.streams and not tally.is_thinned:
        order = torch.randperm(len(target), generator=Generator().manual_seed(SEED))
        rest = order[len(target) // 2 :]
        prediction, target = prediction[rest], target[rest.to(target.device)]
    return tally.metrics(), scaled_metrics(prediction.calibrated(calibration), target, SCALED)
