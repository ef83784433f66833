"""Training any ensemble on any task: the settings, one loop, schedules, and checkpoints to go on from."""

from pluribus.training.loop import train
from pluribus.training.settings import Training

__all__ = ["Training", "train"]
