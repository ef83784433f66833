"""Numbers of arrays as JSON can hold them."""

import math
from typing import Any

import numpy as np

from pluribus.serving.tensors import Array


def plain(values: Array) -> list[Any]:
    """Return numbers as JSON can hold them: NaN and infinity become null."""
    listed: list[Any] = values.tolist()
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        return _without_infinity(listed)
    return listed


def _without_infinity(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, list):
            found.append(_without_infinity(value))
        else:
            found.append(value if math.isfinite(value) else None)
    return found
