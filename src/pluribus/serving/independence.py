"""Independence: whether samples give the same outputs together and alone, so that requests may be batched."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pluribus.serving.tensors import MEMBERS, Array, Arrays, Input

TOLERANCE = 1e-3
"""Largest difference between samples that run alone and together which rounding explains."""
FREE_SIZE = 8
"""Size of made-up samples along axes whose size may vary."""


def samples_are_independent(run: Callable[[Mapping[str, Array]], Arrays], inputs: Sequence[Input]) -> bool:
    """Return whether two samples give the same outputs together and alone, tried on made-up ones.

    Args:
        run: Returns outputs by name for inputs by name.
        inputs: Of the file.
    """
    random = np.random.default_rng(0)
    both = {one.name: made_up(one, 2, random) for one in inputs}
    try:
        together = run(both)
        for place in range(2):
            alone = run({name: value[place : place + 1] for name, value in both.items()})
            if not _same(alone, together, place):
                return False
    # onnxruntime has errors of its own. Inputs that the network refuses show nothing.
    except Exception:
        return False
    return True


def made_up(one: Input, count: int, random: np.random.Generator) -> Array:
    """Return random samples; whole numbers are 0 or 1: tokens of any vocabulary."""
    sizes = [size if isinstance(size, int) else FREE_SIZE for size in one.shape]
    if np.dtype(one.dtype).kind == "f":
        return random.standard_normal((count, *sizes)).astype(one.dtype)
    return random.integers(0, 2, (count, *sizes)).astype(one.dtype)


def _same(alone: Arrays, together: Arrays, place: int) -> bool:
    """Return whether outputs of one sample are those that it has among others."""
    for name, value in alone.items():
        # A label or a flag may flip by rounding; numbers tell enough.
        if value.dtype.kind != "f":
            continue
        axis = 1 if name == MEMBERS else 0
        other = np.take(together[name], [place], axis)
        if value.shape != other.shape:
            return False
        if not np.allclose(value, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
            return False
    return True
