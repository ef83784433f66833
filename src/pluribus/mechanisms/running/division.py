"""Division: whether a batch may be divided among members, so that each sees a part of the samples.

Nodes of a graph refer to one another: an edge must find both of its ends, and a node without its neighbours
gets another prediction. Divided, such a batch would fail, or train on another graph without a word.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.mechanisms.members.index import Row
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.engines import run_slowly

ROUNDING = 1e-3
"""Greatest difference of outputs, relative to the largest: sums may come in another order."""


def why_not_divided(members: AnyMembers, rows: Sequence[Row], inputs: Inputs, part: Tensor) -> str:
    """Return why samples cannot be taken out of a batch; empty if they can, or if the network fails anyway.

    One row runs on the whole batch and on a part of it, in eval mode; the outputs must agree. The answer is
    kept for inputs of one kind.

    Args:
        members: All members.
        rows: The rows.
        inputs: One batch.
        part: Positions of some of its samples.
    """
    # With one input there is nothing by which samples could refer to one another.
    if len(inputs.args) + len(inputs.keywords) < 2:
        return ""
    key, cache = f"divided {inputs.take(slice(1))}", members.code.caller.cache
    if key not in cache:
        cache[key] = _compare(members, rows[:1], inputs, part)
    found: str = cache[key]
    return found


@torch.no_grad()
def _compare(members: AnyMembers, rows: Sequence[Row], inputs: Inputs, part: Tensor) -> str:
    try:
        whole = run_slowly(members, rows, inputs)[0]
    # These inputs do not fit the network, which the training step reports with the layer.
    except InputError:
        return ""
    try:
        alone = run_slowly(members, rows, inputs.take(part))[0]
    except InputError:
        return "fails on a part of them"
    expected = whole[part]
    size = float(expected.abs().nan_to_num(0.0).max())
    if torch.allclose(alone, expected, rtol=0, atol=ROUNDING * size, equal_nan=True):
        return ""
    return "returns something else for a part of them"
