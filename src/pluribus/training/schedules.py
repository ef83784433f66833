"""Schedules: factors of the learning rate, as functions of progress in [0, 1] and the milestones."""

import math
from collections.abc import Callable, Sequence

TENTH = 0.1
"""Factor of the schedule `steps` at each milestone, as in the papers."""


def constant(progress: float, milestones: Sequence[float]) -> float:
    """Return 1."""
    return 1.0


def linear(progress: float, milestones: Sequence[float]) -> float:
    """Fall from 1 to 0 in a straight line."""
    return 1.0 - progress


def cosine(progress: float, milestones: Sequence[float]) -> float:
    """Fall from 1 to 0 along half a wave of the cosine."""
    return (1 + math.cos(math.pi * progress)) / 2


def steps(progress: float, milestones: Sequence[float]) -> float:
    """Fall to a tenth at every milestone."""
    return TENTH ** sum(progress >= milestone for milestone in milestones)


SCHEDULES: dict[str, Callable[[float, Sequence[float]], float]] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "steps": steps,
}
