"""Pieces: cut a batch into pieces whose activations fit into memory.

The bytes that a sample takes are counted, not guessed: one sample and three of them run under a meter, and
their difference is the cost of two more. The outputs of that one sample must not depend on the others. If
they do, as with norms that use the statistics of the batch, the batch is not cut.
"""

from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.mechanisms.graph.cost import Meter
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.ranges import Range

MOST_BYTES = 256 << 20
"""Bytes of activations of a piece; beyond the caches of a processor larger batches gain nothing."""
CHUNK, BYTES = Range(int, at_least=1, optional=True), Range(int, at_least=1)
"""Values of `chunk` and `most_bytes`."""
SAMPLES = 3
"""Samples of the larger of the two runs that are counted."""
# A token of 8 bytes becomes vectors of thousands of numbers, in every layer.
MOST_GROWTH = 1 << 16
"""Bytes of activations for a byte of input; a batch that fits even so is not counted."""
ROUNDING = 1e-3
"""Greatest difference of outputs, relative to the largest: sums may come in another order."""


class Bytes(NamedTuple):
    """Memory of a batch: bytes that any batch takes, and bytes for each sample."""

    base: int
    sample: int


def cut(
    inputs: Inputs,
    chunk: int | None,
    most_bytes: int | None,
    run: Callable[[Inputs], Tensor],
    cache: MutableMapping[Any, Any],
    key: str = "",
) -> Iterable[Inputs]:
    """Return a batch in pieces.

    Args:
        inputs: The batch.
        chunk: The most samples of a piece; None finds a number by the memory that they take.
        most_bytes: The most bytes of activations of a piece without `chunk`; None does not cut.
        run: Returns the outputs of a piece, `[members, batch, ...]`, and leaves no trace.
        cache: Keeps what was counted.
        key: What else the memory depends on, such as the rows.
    """
    size = chunk
    if chunk is None and most_bytes is not None:
        size = samples_that_fit(inputs, most_bytes, run, cache, key)
    return inputs.chunks(size)


def samples_that_fit(
    inputs: Inputs,
    most_bytes: int,
    run: Callable[[Inputs], Tensor],
    cache: MutableMapping[Any, Any],
    key: str = "",
) -> int | None:
    """Return how many samples fit; None if all do, or if samples cannot be told apart.

    Args:
        inputs: The batch.
        most_bytes: The most bytes of activations.
        run: As for `cut`.
        cache: As for `cut`.
        key: As for `cut`.
    """
    if inputs.batch <= SAMPLES or not _is_cut_whole(inputs):
        return None
    size = sum(tensor.nbytes for tensor in inputs.tensors())
    if size * MOST_GROWTH <= most_bytes:
        return None
    found = _counted(inputs, run, cache, key)
    if found is None or found.base + found.sample * inputs.batch <= most_bytes:
        return None
    # Memory that any batch takes cannot be saved by smaller ones.
    room = most_bytes - found.base
    if room < found.sample:
        room = most_bytes
    return max(1, room // max(1, found.sample))


def can_be_cut(
    inputs: Inputs, run: Callable[[Inputs], Tensor], cache: MutableMapping[Any, Any], key: str = ""
) -> bool:
    """Return whether samples do not depend on one another, so that a batch may run in pieces.

    Args:
        inputs: The batch.
        run: As for `cut`.
        cache: As for `cut`.
        key: As for `cut`.
    """
    return _is_cut_whole(inputs) and _counted(inputs, run, cache, key) is not None


def _counted(
    inputs: Inputs, run: Callable[[Inputs], Tensor], cache: MutableMapping[Any, Any], key: str
) -> Bytes | None:
    """Return the memory of batches of this kind, which is counted once; None if they cannot be cut."""
    # Shapes and types as they are: a text would take longer than a small network.
    place = ("bytes", key, *((tensor.shape[1:], tensor.dtype, tensor.device) for tensor in inputs.tensors()))
    if place not in cache:
        cache[place] = _count(inputs, run)
    found: Bytes | None = cache[place]
    return found


def _is_cut_whole(inputs: Inputs) -> bool:
    """Return whether every input is a tensor with the batch axis, so that nothing refers to other samples."""
    given = [*inputs.args, *inputs.keywords.values()]
    batch = inputs.batch
    for value in given:
        if not isinstance(value, Tensor) or value.ndim == 0 or value.layout is not torch.strided:
            return False
        if value.shape[0] != batch:
            return False
    return True


@torch.no_grad()
def _count(inputs: Inputs, run: Callable[[Inputs], Tensor]) -> Bytes | None:
    """Return the memory of a batch; None if a sample alone fails, or has other outputs than among others."""
    try:
        # The first run reads the data flow and fills caches, which do not belong to a batch.
        run(inputs.take(slice(0, 1)))
        one, alone = _measured(inputs.take(slice(0, 1)), run)
        several, among = _measured(inputs.take(slice(0, SAMPLES)), run)
    # The network fails on some samples; the run of all of them reports it, or does not fail.
    except InputError:
        return None
    among = among[:, :1]
    if alone.shape != among.shape:
        return None
    largest = float(among.abs().nan_to_num(0.0).max()) if among.numel() else 0.0
    if not torch.allclose(alone, among, rtol=0, atol=ROUNDING * largest, equal_nan=True):
        return None
    sample = max(0, several - one) // (SAMPLES - 1)
    return Bytes(max(0, one - sample), sample)


def _measured(inputs: Inputs, run: Callable[[Inputs], Tensor]) -> tuple[int, Tensor]:
    """Return the most bytes of activations alive at once, and the outputs."""
    with Meter() as meter:
        outputs = run(inputs)
    return meter.peak, outputs
