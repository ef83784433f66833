"""Ends of trials, for samplers: what they measured, or why they measured nothing."""

import math
from collections.abc import Sequence

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from pluribus.search.queue import ERROR, HALVED, SKIPPED
from pluribus.search.worker import IMPOSSIBLE


def losses_of(trial: FrozenTrial, directions: Sequence[StudyDirection]) -> list[float]:
    """Return the values of a measured trial so that less is better."""
    pairs = zip(trial.values, directions, strict=True)
    return [-value if direction == StudyDirection.MAXIMIZE else value for value, direction in pairs]


def is_measured(trial: FrozenTrial) -> bool:
    """Return whether a trial has values that are numbers: no model can learn from an infinite one."""
    return trial.state == TrialState.COMPLETE and all(map(math.isfinite, trial.values))


def came_to_nothing(trial: FrozenTrial) -> bool:
    """Return whether a trial failed, was impossible, was stopped early, or has infinite values."""
    if trial.state == TrialState.COMPLETE:
        return not is_measured(trial)
    stored = trial.user_attrs
    return ERROR in stored or HALVED in stored or str(stored.get(SKIPPED, "")).startswith(IMPOSSIBLE)
