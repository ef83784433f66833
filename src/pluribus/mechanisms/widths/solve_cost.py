"""Solve a cost: the largest width at which a network takes no more than some multiply-adds.

Multiply-adds grow with the square of the width in inner layers and in proportion to it in the first and last
ones, so that their square root is nearly a straight line, along which the search goes.
"""

import math
from collections.abc import Callable

CLOSE = 0.005
"""A cost this close below the wanted one, as a share of it, ends the search."""
MOST_TRIALS = 12
"""Costs that are counted at most: each builds a network."""
NARROWEST = 1e-3
"""Widths this close together, as a share, are one."""


def solve_width(cost_of: Callable[[float], float], wanted: float, start: float, widest: float) -> float:
    """Return a width with a cost of at most `wanted`, as close to it as whole channels allow.

    Args:
        cost_of: Callback width -> cost, which grows with the width in steps.
        wanted: The greatest cost, above 0.
        start: The first width to try.
        widest: The greatest width.

    Raises:
        ValueError: Every width that was tried costs more; the message has the least cost.
    """
    known: dict[float, float] = {}
    low, high, trial = 0.0, math.inf, min(start, widest)
    for _ in range(MOST_TRIALS):
        cost = cost_of(trial)
        known[trial] = cost
        if cost <= wanted:
            low = trial
        else:
            high = trial
        if low and (_is_close(cost, wanted) or low == widest or high - low < NARROWEST * low):
            break
        trial = min(_next(known, low, high, wanted), widest)
    if not low:
        raise ValueError(f"{min(known.values()):.3g}")
    return low


def _is_close(cost: float, wanted: float) -> bool:
    return (1 - CLOSE) * wanted <= cost <= wanted


def _next(known: dict[float, float], low: float, high: float, wanted: float) -> float:
    """Return the next width to try: on the line through the two nearest trials, and between them."""
    if not low:
        # The cost of single channels may be above the wanted one: come down faster than the line says.
        return high * min(0.9, math.sqrt(wanted / known[high]))
    if math.isinf(high):
        return low * max(1.05, math.sqrt(wanted / known[low]))
    below, above = math.sqrt(known[low]), math.sqrt(known[high])
    share = (math.sqrt(wanted) - below) / (above - below)
    # Costs come in steps: a line that ends at a trial would stay there.
    return low + (high - low) * min(max(share, 0.1), 0.9)
