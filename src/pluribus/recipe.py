"""Recipe: how a method wants its training to differ from that of a single network."""

from dataclasses import dataclass

from pluribus.ranges import LARGEST
from pluribus.settings import Settings, setting


@dataclass(frozen=True)
class Recipe(Settings):
    """Changes to the training that a user chose for all methods; `Training.following` applies them.

    Args:
        longer: Factor of the number of steps, at least 1.
        weight_decay: In place of the user's; None keeps that one.
        schedule: Of the learning rate, also of `finetune`, in place of the user's; None keeps that one.
        tuning_lr: Learning rate with which `finetune` tunes a trained network; None is its usual one.
    """

    longer: float = setting(1.0, at_least=1, at_most=LARGEST)
    weight_decay: float | None = setting(None, kind=float, at_least=0, at_most=LARGEST)
    schedule: str | None = setting(None, kind=str)
    tuning_lr: float | None = setting(None, kind=float, above=0, at_most=LARGEST)
