"""Inputs and targets in batches, from any form in which data may be given."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from pluribus.data.task import Split, Task
from pluribus.errors import InputError
from pluribus.mechanisms.network.inputs import Inputs

CHUNK = 512
# More samples change no finding, and a pass in train mode needs memory.
MOST_SAMPLES = 2048


def labelled_batches(data: Any, device: torch.device) -> list[tuple[Inputs, Tensor]]:
    """Return inputs and targets in chunks, up to a number of samples."""
    found: list[tuple[Inputs, Tensor]] = []
    samples = 0
    for x, y in _pairs(data):
        inputs = Inputs.of(x).to(device)
        for start in range(0, inputs.batch, CHUNK):
            if samples >= MOST_SAMPLES:
                return found
            part = slice(start, start + CHUNK)
            found.append((inputs.take(part), y[part].to(device)))
            samples += len(found[-1][1])
    if samples < 2:
        raise InputError(f"data must have at least two samples with targets, got {samples}.")
    return found


def _pairs(data: Any) -> Iterable[tuple[Any, Tensor]]:
    if isinstance(data, Task):
        data = data.validation if len(data.validation) else data.test
    if isinstance(data, Split):
        data = (data.x, data.y)
    alone = isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[1], Tensor)
    pairs = [data] if alone else list(data)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[1], Tensor):
            raise InputError(f"data must be (x, y), a Split, a Task or a loader of pairs, got {type(pair)}.")
    return pairs
