"""Successive halving for several objectives: stop trials early that many others are better than.

At a few points of its training, the rungs, a trial is measured. It goes on unless more than 1/η of the
trials that reached the same rung have a better non-dominated rank. Trials of the front always go on.

Jamieson & Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", AISTATS 2016;
asynchronous as in Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020. Ranks in
place of one objective are ours: Optuna's pruners take one objective alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pluribus.ranges import check
from pluribus.search.front import Point, ranks


@dataclass(frozen=True)
class Halving:
    """When trials are measured, and how many go on.

    Args:
        keep: One of so many trials goes on from each rung (η), at least 2.
        rungs: How many rungs, at least 1: the last is after 1/η of training, others at η-ths of that.
    """

    keep: int = 3
    rungs: int = 2

    def __post_init__(self) -> None:
        check("keep", self.keep, int, at_least=2)
        check("rungs", self.rungs, int, at_least=1)

    def epochs(self, total: int) -> list[int]:
        """Return the epochs after which a training of `total` is measured, ascending.

        >>> Halving().epochs(30)
        [4, 10]
        """
        found = {math.ceil(total / self.keep**power) for power in range(1, self.rungs + 1)}
        return sorted(epoch for epoch in found if epoch < total)

    def stops(self, losses: Point, others: Sequence[Point]) -> bool:
        """Return whether a trial stops at a rung.

        Args:
            losses: Its own; less is better.
            others: Those of the trials that reached the rung before.
        """
        # With fewer than η trials one of them would stop for no reason.
        if len(others) + 1 < self.keep or not all(map(math.isfinite, losses)):
            return not all(map(math.isfinite, losses))
        own, *rest = ranks([losses, *others])
        better = sum(rank < own for rank in rest)
        return better > (len(others) + 1) / self.keep
