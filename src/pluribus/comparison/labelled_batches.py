"""Inputs and targets in batches, from any form in which data may be given."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from pluribus.data.split import Split
from pluribus.data.task import Task
from pluribus.errors import InputError
from pluribus.mechanisms.network.batches import accepted_by
from pluribus.mechanisms.network.inputs import Inputs

CHUNK = 512
# More samples change no finding, and a pass in train mode needs memory.
MOST_SAMPLES = 2048
# Samples that are streamed are large more often than not.
STREAM_CHUNK, MOST_STREAMED = 32, 256


def labelled_batches(
    data: Any, device: torch.device, forward: Callable[..., Any] | None = None
) -> list[tuple[Inputs, Tensor]]:
    """Return inputs and targets in chunks, up to a number of samples.

    Args:
        data: `(x, y)`, a `Split`, a `Task` (its validation data), or a loader of such pairs.
        device: Where they go.
        forward: Of the network; entries of samples that it does not accept are left out.
    """
    if isinstance(data, Task):
        data = data.validation if len(data.validation) else data.test
    streamed = isinstance(data, Split) and data.streams
    chunk, most = (STREAM_CHUNK, MOST_STREAMED) if streamed else (CHUNK, MOST_SAMPLES)
    found: list[tuple[Inputs, Tensor]] = []
    samples = 0
    for x, y in _pairs(data, chunk):
        inputs = Inputs.of(x) if forward is None else accepted_by(Inputs.of(x), forward)
        inputs = inputs.to(device)
        for start in range(0, inputs.batch, chunk):
            if samples >= most:
                return found
            part = slice(start, start + chunk)
            found.append((inputs.take(part), y[part].to(device)))
            samples += len(found[-1][1])
    if samples < 2:
        raise InputError(f"data must have at least two samples with targets, got {samples}.")
    return found


def _pairs(data: Any, chunk: int) -> Iterable[tuple[Any, Tensor]]:
    if isinstance(data, Split):
        return data.batches(chunk)
    alone = isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[1], Tensor)
    pairs = [data] if alone else list(data)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[1], Tensor):
            raise InputError(f"data must be (x, y), a Split, a Task or a loader of pairs, got {type(pair)}.")
    return pairs
