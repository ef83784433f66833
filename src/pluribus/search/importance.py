"""Importance of settings: how much of the differences between trials each setting explains.

Trials are put into groups of alike values: the choices themselves, or quarters of the numbers. The share of
the variance that lies between groups, corrected for what chance alone would give (Kelley, "An unbiased
correlation ratio measure", PNAS 1935):

    ε² = (S_between − (g − 1) S_within / (n − g)) / S_total,    g groups, n trials                   (1)
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

GROUPS = 4
"""Groups of the values of a number."""
LEAST_TRIALS = 6
"""With fewer trials every setting looks important."""


def importances(parameters: Sequence[Mapping[str, Any]], losses: Sequence[float]) -> dict[str, float]:
    """Return the importance of each parameter in [0, 1], the greatest first.

    Args:
        parameters: Of each trial; those of other methods are missing.
        losses: Of each trial.
    """
    names: dict[str, None] = {}
    for one in parameters:
        names |= dict.fromkeys(one)
    found = {}
    for name in names:
        pairs = [(one[name], loss) for one, loss in zip(parameters, losses, strict=True) if name in one]
        if len(pairs) >= LEAST_TRIALS:
            values, known = zip(*pairs, strict=True)
            found[name] = correlation_ratio(_groups(values), known)
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def correlation_ratio(groups: Sequence[int], losses: Sequence[float]) -> float:
    """Return the share of the variance between groups, Eq. (1); at least 0."""
    mean = statistics.fmean(losses)
    total = sum((loss - mean) ** 2 for loss in losses)
    members: dict[int, list[float]] = {}
    for group, loss in zip(groups, losses, strict=True):
        members.setdefault(group, []).append(loss)
    free = len(losses) - len(members)
    if total <= 0 or free <= 0 or len(members) < 2:
        return 0.0
    between = sum(len(one) * (statistics.fmean(one) - mean) ** 2 for one in members.values())
    within = total - between
    return max(0.0, (between - (len(members) - 1) * within / free) / total)  # Eq. (1)


def _groups(values: Sequence[Any]) -> list[int]:
    """Return the number of the group of each value."""
    distinct = list(dict.fromkeys(values))
    numbers = all(isinstance(value, int | float) for value in distinct)
    if len(distinct) <= GROUPS or not numbers:
        return [distinct.index(value) for value in values]
    ends = statistics.quantiles(values, n=GROUPS)
    return [sum(value > end for end in ends) for value in values]
