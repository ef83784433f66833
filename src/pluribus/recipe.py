"""Recipe: how a method wants its training to differ from that of a single network."""

from dataclasses import dataclass

from pluribus.ranges import LARGEST
from pluribus.settings import Settings, setting

COPIES_LR = 3e-4
"""Rate of a tuning of members that start as copies of one network. With 1e-4, the usual one, copies in
`benchmarks/trained.py --explore` had a mutual information of 0.0013 after an epoch, and 0.0038 with this one,
at an NLL that was no higher. With 3e-3, the rate that the network was trained with, they had more, and a
lower NLL, but that rate is too much to ask of every network."""


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
