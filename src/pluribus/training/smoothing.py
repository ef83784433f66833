"""Label smoothing: a part of every class label is spread evenly over all classes.

Szegedy et al., "Rethinking the Inception architecture for computer vision", CVPR 2016:

    q_k = (1 − ε) [k = y] + ε / K
"""

import torch.nn.functional as F
from torch import Tensor

from pluribus.data.split import CHECKED
from pluribus.data.task import Task
from pluribus.errors import SettingError
from pluribus.likelihood import Bernoulli, Categorical


def check_smoothing(task: Task, share: float) -> None:
    """Raise `SettingError` if the targets of the task cannot be smoothed."""
    if not share:
        return
    if not isinstance(task.likelihood, Categorical | Bernoulli):
        kind = type(task.likelihood).__name__
        raise SettingError(f"label_smoothing needs classes or labels, got {kind}. Set it to 0.")
    y = task.train.example(CHECKED).target if task.train.streams else task.train.y
    if isinstance(task.likelihood, Categorical) and (y < 0).any():
        # Targets of probabilities cannot leave out a position.
        raise SettingError("label_smoothing needs a class at every position, got ignored ones. Set it to 0.")


def smooth_labels(y: Tensor, classes: int | None, share: float) -> Tensor:
    """Return smoothed targets: probabilities `[batch, classes, ...]`, or labels moved towards 1/2.

    Args:
        y: Class numbers `[batch, ...]`, their probabilities `[batch, classes, ...]`, or labels in 0 to 1.
        classes: Number of classes; None for labels.
        share: The share that is spread, in [0, 1); 0 returns `y` itself.
    """
    if not share:
        return y
    if classes is None:
        return y * (1 - share) + share / 2
    if not y.is_floating_point():
        y = class_shares(y, classes)
    return y * (1 - share) + share / classes


def class_shares(y: Tensor, classes: int) -> Tensor:
    """Return class numbers `[batch, ...]` as probabilities, `[batch, classes, ...]`."""
    return F.one_hot(y, classes).movedim(-1, 1).float()
