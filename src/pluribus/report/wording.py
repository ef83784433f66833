"""Wording: lists, shares and differences as running text has them."""

import math
from collections.abc import Sequence

from pluribus.report.columns import Column
from pluribus.report.noise import Difference


def listed(parts: Sequence[object]) -> str:
    """Return `a, b and c`.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    if not parts:
        return ""
    *first, last = map(str, parts)
    return f"{', '.join(first)} and {last}" if first else last


def times(ratio: float) -> str:
    """Return a multiple; a dash where it is not known.

    >>> times(1.5)
    '1.50 ×'
    """
    return "–" if math.isnan(ratio) else f"{ratio:.2f} ×"


def percent(share: float) -> str:
    """Return a share with one decimal.

    >>> percent(0.9123)
    '91.2 %'
    """
    return f"{100 * share:.1f} %"


def with_interval(gap: Difference, column: Column) -> str:
    """Return a difference with its interval, both counted in the direction that the word names."""
    if gap.value >= 0:
        word, value, low, high = "higher", gap.value, gap.low, gap.high
    else:
        word, value, low, high = "lower", -gap.value, -gap.high, -gap.low
    digits = column.digits
    text = f"{value:.{digits}f} {word} (95 % interval {low:.{digits}f} to {high:.{digits}f})"
    # A minus sign is as wide as a digit; a hyphen is not.
    return text.replace("-", "−")
