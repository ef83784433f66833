"""Prove: a shortcut must compute on the example what the slow way computes."""

from collections.abc import Callable

import torch
from torch import Tensor


@torch.no_grad()
def prove(new: Callable[[], Tensor], old: Callable[[], Tensor]) -> str:
    """Return why the outputs of `new` are not those of `old`, up to rounding; empty where they are.

    Errors are measured against the largest output: a shortcut adds numbers in another order, so that
    small outputs next to large ones lose digits that were noise before. NaN must stay NaN.

    Args:
        new: Computes the outputs by the shortcut. Whatever it raises is the reason.
        old: Computes them by the slow way.
    """
    expected = old()
    try:
        came = new()
    except Exception as error:  # the user's code runs in a way it was not written for
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
    if came.shape != expected.shape:
        return f"outputs have shape {tuple(came.shape)}, expected {tuple(expected.shape)}"
    if not torch.equal(came.isnan(), expected.isnan()):
        return "other outputs are NaN"
    scale = expected.nan_to_num().abs().max().clamp(min=1e-12)
    largest = float((came - expected).nan_to_num().abs().max() / scale)
    # Half the digits of the precision: foldings differ by a few units of the last place per layer.
    bound = torch.finfo(expected.dtype).eps ** 0.5
    return "" if largest <= bound else f"outputs differ by {largest:.1e} of the largest"
