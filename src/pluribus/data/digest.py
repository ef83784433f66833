"""Digest: a short text that tells one set of data from another.

    data                     digested
    tensors in memory        every byte
    dataset with numbers     its length and 16 samples, evenly spaced, read with fixed random numbers
    order of its own         its length, and the names, types and shapes of inputs: samples may be shuffled

Types and names count too. Equal data has equal digests on every machine of the same byte order.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pluribus.data.in_memory import InMemory
from pluribus.data.indexed import Indexed, Seeded
from pluribus.data.scaling import Rescaled
from pluribus.data.shifted import Shifted
from pluribus.data.split import Split

SAMPLES = 16
LETTERS = 16
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def digest(value: Any) -> str:
    """Return the digest of settings, tensors, splits, and dicts and lists of these."""
    state = hashlib.blake2b(digest_size=LETTERS // 2)
    _add(state, value)
    return state.hexdigest()


def _add(state: Any, value: Any) -> None:
    """Feed a value into a hash, with its type, so that no two different values feed the same bytes."""
    if isinstance(value, Split):
        _add_split(state, value)
    elif isinstance(value, Mapping):
        _add_mapping(state, value)
    elif isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous()
        _add_text(state, f"tensor {flat.dtype} {list(flat.shape)}")
        # As bytes, because NumPy lacks bfloat16.
        state.update(flat.reshape(-1).view(torch.uint8).numpy().data)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        _add(state, torch.from_numpy(np.ascontiguousarray(value)))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        _add_text(state, f"sequence {len(value)}")
        for entry in value:
            _add(state, entry)
    else:
        _add_text(state, f"{type(value).__name__} {_plain(value)}")


def _add_mapping(state: Any, value: Mapping[Any, Any]) -> None:
    if isinstance(value, Shifted):
        # Corrupted images follow from these, and take long to make.
        _add(state, [value.images, value.kinds, value.seed])
    elif isinstance(value, Rescaled):
        _add(state, value.raw)
    elif hasattr(value, "identity"):
        _add(state, value.identity)
    else:
        _add_text(state, f"mapping {len(value)}")
        for name, entry in value.items():
            _add_text(state, str(name))
            _add(state, entry)


def _add_text(state: Any, text: str) -> None:
    content = text.encode("utf-8", "surrogatepass")
    # With its length before it, one text cannot run into the next.
    state.update(len(content).to_bytes(8, "little") + content)


def _plain(value: Any) -> str:
    """Return a value as text that is the same in every process."""
    if value is None or isinstance(value, str | int | float | bool):
        return json.dumps(value)
    # Pictures and the like have pixels; all else is told by its text, without its address in memory.
    if hasattr(value, "tobytes"):
        return hashlib.blake2b(value.tobytes(), digest_size=8).hexdigest()
    return ADDRESS.sub("", repr(value))


def _add_split(state: Any, split: Split) -> None:
    samples = split.samples
    _add_text(state, f"split {len(split)}")
    if isinstance(samples, InMemory):
        _add(state, [samples.x, samples.y, samples.weights])
    elif isinstance(samples, Indexed):
        _add_indexed(state, samples)
    elif len(split):
        inputs = split.example(1).inputs
        # Batches are padded to different lengths, so that sizes of axes tell nothing.
        kinds = [f"{tensor.dtype} {tensor.ndim}" for tensor in inputs.tensors()]
        _add(state, [samples.own_order, sorted(inputs.keywords), kinds])


def _add_indexed(state: Any, samples: Indexed) -> None:
    _add(state, [type(samples.dataset).__name__, samples.weights])
    count = len(samples)
    if not count:
        return
    index = torch.linspace(0, count - 1, min(SAMPLES, count), dtype=torch.float64).long()
    # Without the transform, which is code: its random numbers and its text say little.
    reader = Seeded(samples.dataset, None, 0)
    for number in samples.numbers(index):
        _add(state, reader.__getitems__([number])[0])
