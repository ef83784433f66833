"""Schedules: factors on the learning rate as functions of progress in [0, 1]."""

import math
from collections.abc import Callable

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: (1 + math.cos(math.pi * progress)) / 2,
    "steps": lambda progress: 0.1 ** ((progress >= 0.5) + (progress >= 0.75)),
}
