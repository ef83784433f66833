"""Train any ensemble on any task: settings, one loop, schedules, and checkpoints to continue from."""

from pluribus.training.augment import Augment
from pluribus.training.hardware import Hardware
from pluribus.training.loop import train
from pluribus.training.settings import Training

__all__ = ["Augment", "Hardware", "Training", "train"]
