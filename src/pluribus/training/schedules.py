"""Schedules: factors of the learning rate, as functions of progress in [0, 1] and of milestones."""

import math
from collections.abc import Callable, Sequence

TENTH = 0.1
"""Usual factor of the schedule `steps` at each milestone."""


def constant(progress: float, milestones: Sequence[float], factor: float) -> float:
    """Return 1."""
    return 1.0


def linear(progress: float, milestones: Sequence[float], factor: float) -> float:
    """Fall from 1 to 0 in a straight line."""
    return 1.0 - progress


def cosine(progress: float, milestones: Sequence[float], factor: float) -> float:
    """Fall from 1 to 0 along half a wave of the cosine."""
    return (1 + math.cos(math.pi * progress)) / 2


def steps(progress: float, milestones: Sequence[float], factor: float) -> float:
    """Fall by the factor at every milestone."""
    return factor ** sum(progress >= milestone for milestone in milestones)


SCHEDULES: dict[str, Callable[[float, Sequence[float], float], float]] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "steps": steps,
}
