"""Read validation data in any form in which a user has it."""

from collections.abc import Callable
from typing import Any

import torch

from pluribus.calibration.fit import LEAST_SAMPLES, Validation
from pluribus.data.split import Split
from pluribus.data.task import Task
from pluribus.errors import InputError
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.ranking.rank import with_targets
from pluribus.ranges import invalid

MOST_STREAMED = 1024
"""Samples of a stream that are read to calibrate by."""
MOST_NUMBERS = 2**26
"""Numbers of their inputs."""


def read_validation(data: Any, forward: Callable[..., Any], device: torch.device) -> Validation:
    """Return all inputs and targets.

    Args:
        data: `(x, y)`, a `Split`, a `Task`, whose validation data is taken, or a loader of pairs.
        forward: Of the network, which tells what it accepts.
        device: Where inputs and targets go.
    """
    scaling = None
    if isinstance(data, Task):
        if not len(data.validation):
            raise InputError(
                f"the task {data.name} must have validation data to calibrate by, got none. Pass (x, y)."
            )
        scaling, data = data.scaling, data.validation
    if isinstance(data, Split):
        # All of it is altered and run several times, so that a part of a stream has to do.
        numbers = sum(tensor[0].numel() for tensor in data.example(1).inputs.tensors())
        held = data.sample(max(LEAST_SAMPLES, min(MOST_STREAMED, MOST_NUMBERS // max(numbers, 1))))
        data = (held.x, held.y)
    inputs, targets = [], []
    for batch, target in with_targets(data, forward):
        inputs.append(batch.to(device))
        targets.append(target.to(device))
    return Validation(inputs[0] if len(inputs) == 1 else Inputs.joined(inputs), torch.cat(targets), scaling)


def read_shifted(shifted: Any, forward: Callable[..., Any], device: torch.device) -> Validation | None:
    """Return shifted data that was given; None for "auto" and None."""
    if shifted is None:
        return None
    if isinstance(shifted, str):
        if shifted != "auto":
            raise invalid("shifted", '"auto", None or data', shifted)
        return None
    return read_validation(shifted, forward, device)
