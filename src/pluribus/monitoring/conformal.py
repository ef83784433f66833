"""Conformal p-values of a stream of scores, independent and uniform as long as the stream is exchangeable.

Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005.

The p-value of a new score s against a bag of n earlier ones is

    p = (#{s_i > s} + U (#{s_i = s} + 1)) / (n + 1),    U uniform in (0, 1)                (1)

It is near 0 for a sample that is stranger than all before. If bag and stream are exchangeable, p is uniform.

A bag that never changes would not do. Its p-values all share the errors of the same n validation samples, so
that they depend on one another, and a test on them alarms sooner or later on perfectly good data. Here every
new score enters the bag after its p-value was computed, which makes the p-values independent (the book
proves it).

A full bag loses one of its n + 1 scores at random. That keeps the p-values independent. Given the n + 1
scores as a set, each is equally probable to be the new one, whatever happened before; p depends on which one
is new, and the score that leaves is drawn without regard to that. So the bag that remains is independent of
p, and the argument repeats with the next score. Memory is bounded, and the stream may go on for ever.

Deviation from the book: bags of bounded size.
"""

import bisect
from collections.abc import Iterable
from typing import Any

import numpy as np

from pluribus.errors import InputError

Array = np.ndarray[Any, Any]

MOST_SCORES = 20_000
"""Scores in the bag: twice the most that a calibration keeps."""


class ConformalStream:
    """P-values of scores, one after another.

    Args:
        reference: Scores of validation samples, in any order, finite.
        grain: Scores are rounded to multiples of it before they are compared. A network that was trained in
            one program and runs in another differs by rounding errors, which must not look like a change.
        most: Scores in the bag; at least as many as the reference has.
        seed: Of the random numbers in Eq. (1), and of the choice of the score that leaves the bag.

    Raises:
        InputError: The reference is empty or not finite.
    """

    def __init__(
        self, reference: Iterable[float], grain: float, most: int = MOST_SCORES, seed: int = 0
    ) -> None:
        scores = finite_scores(reference, "reference scores")
        if not len(scores):
            raise InputError("reference scores must be at least 1, got none. Calibrate the ensemble.")
        self.grain = grain
        self.most = max(most, len(scores))
        self.random = np.random.default_rng(seed)
        # Sorted, so that ranks are found by bisection. A list inserts faster than an array of this size.
        self.bag: list[float] = np.sort(self._rounded(scores)).tolist()

    def p_values(self, scores: Array) -> Array:
        """Return the p-values of Eq. (1) of new scores, each above 0 and at most 1; they enter the bag."""
        # 1 − U is above 0, and so is p: bets on 0 would be infinite.
        uniform = 1.0 - self.random.random(len(scores))
        found = np.empty(len(scores))
        for place, value in enumerate(self._rounded(scores).tolist()):
            found[place] = self._p_value(value, uniform[place])
        return found

    def _p_value(self, value: float, uniform: float) -> float:
        """Return the p-value of a rounded score, and put it into the bag."""
        count = len(self.bag)
        first = bisect.bisect_left(self.bag, value)
        after = bisect.bisect_right(self.bag, value)
        stranger, ties = count - after, after - first
        self.bag.insert(after, value)
        if len(self.bag) > self.most:
            self.bag.pop(int(self.random.integers(len(self.bag))))
        return (stranger + uniform * (ties + 1)) / (count + 1)

    def _rounded(self, scores: Array) -> Array:
        rounded: Array = np.round(scores / self.grain)
        return rounded


def finite_scores(scores: Iterable[float], name: str) -> Array:
    """Return scores as float64 `[count]`; raise `InputError` for other shapes, NaN and infinity."""
    values = np.asarray(scores if isinstance(scores, np.ndarray) else list(scores), dtype=np.float64)
    if values.ndim != 1:
        raise InputError(f"{name} must be numbers [count], got the shape {list(values.shape)}.")
    if not np.isfinite(values).all():
        raise InputError(f"{name} must be finite, got NaN or infinity. Remove these samples.")
    return values
