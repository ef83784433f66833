"""Budget: the number of steps of a training, and their epochs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_EPOCHS = 30
LEAST_STEPS = 1000
"""The default budget: so many epochs, and more where these are fewer steps. After 150 steps, 30 epochs of 300
images, methods that divide a batch or narrow the members had not learnt yet."""

MOST_CHECKS = 40
"""How often a training is validated at most. A validation writes a checkpoint too: where an epoch has few
steps, both would take longer than these. Forty put two validations into the last twentieth of training."""

LATE = 0.95
"""A best epoch after this share of training means that longer training would help."""


@dataclass(frozen=True)
class Budget:
    """Steps of a training on some number of samples.

    Attributes:
        steps: Steps of the whole training.
        steps_per_epoch: Steps of one pass over the samples; the last epoch may have fewer.
    """

    steps: int
    steps_per_epoch: int

    @property
    def epochs(self) -> int:
        """Return the number of passes over the samples; the last may be a part."""
        return -(-self.steps // self.steps_per_epoch)

    def done(self, epochs: int) -> int:
        """Return the number of steps of that many epochs."""
        return min(epochs * self.steps_per_epoch, self.steps)

    def is_checked(self, epoch: int, every: int) -> bool:
        """Return whether validation follows an epoch: every so many of them, and always the last."""
        return epoch % every == 0 or epoch == self.epochs

    def is_late(self, epoch: int) -> bool:
        """Return whether an epoch lies in the last twentieth of training."""
        return self.done(epoch) > LATE * self.steps


def is_scored_early(scores: Sequence[float]) -> bool:
    """Return whether a validation score is known in the first half of training; NaN stands for none.

    Where all scores lie at the end, the best does too: SWAG has no members before its first snapshot, and
    `check_every` may leave the last epoch alone.
    """
    first_half = scores[: max(1, len(scores) // 2)]
    return any(not math.isnan(score) for score in first_half)


def make_budget(samples: int, step_samples: int, epochs: int | None, steps: int | None) -> Budget:
    """Return the budget of one of `epochs` and `steps`, or the default of neither.

    Args:
        samples: Size of the training set.
        step_samples: Samples of a step.
        epochs: Passes over the training set.
        steps: Steps of the optimizer.
    """
    per_epoch = -(-samples // step_samples)
    if steps is not None:
        return Budget(steps, per_epoch)
    if epochs is None:
        epochs = max(LEAST_EPOCHS, -(-LEAST_STEPS // per_epoch))
    return Budget(epochs * per_epoch, per_epoch)
