"""Jobs: requests in the queue, put together to a batch and taken apart again."""

import asyncio
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pluribus.serving.tensors import MEMBERS, Array, Arrays


@dataclass(eq=False)
class Job:
    """One request in the queue.

    Attributes:
        arrays: Its inputs.
        samples: How many there are.
        answer: Set to its outputs, or to the error.
        arrived: On the monotonic clock.
    """

    arrays: Arrays
    samples: int
    answer: "asyncio.Future[Arrays]"
    arrived: float = field(default_factory=time.monotonic)

    @property
    def kind(self) -> Hashable:
        """Return what requests must have in common to run together."""
        return tuple((name, value.shape[1:]) for name, value in sorted(self.arrays.items()))


def count_samples(batch: Sequence[Job]) -> int:
    """Return how many samples there are in a batch."""
    return sum(job.samples for job in batch)


def joined_inputs(batch: Sequence[Job]) -> Arrays:
    """Return the inputs of all requests of a batch, one behind the other."""
    if len(batch) == 1:
        return batch[0].arrays
    found = {}
    for name in batch[0].arrays:
        found[name] = np.concatenate([job.arrays[name] for job in batch])
    return found


def checked_outputs(outputs: Arrays, count: int) -> Arrays:
    """Return outputs; raise `ValueError` unless each has a value for each of `count` samples."""
    for name, value in outputs.items():
        if value.shape[_axis(name)] != count:
            raise ValueError(f"output {name} must have {count} samples, got shape {list(value.shape)}")
    return outputs


def answer_jobs(batch: Sequence[Job], outputs: Mapping[str, Array]) -> None:
    """Give each request its part of the outputs."""
    start = 0
    for job in batch:
        end = start + job.samples
        parts = {name: _part(name, value, start, end) for name, value in outputs.items()}
        # A client that went away has cancelled its request.
        if not job.answer.done():
            job.answer.set_result(parts)
        start = end


def _axis(name: str) -> int:
    """Return the axis of samples of an output."""
    return 1 if name == MEMBERS else 0


def _part(name: str, value: Array, start: int, end: int) -> Array:
    """Return some samples of an output."""
    return value[:, start:end] if _axis(name) else value[start:end]
