"""DriftMonitor: an alarm when scores of incoming samples are no longer like those of validation samples.

Each score gets a conformal p-value (`conformal.py`), and bets are placed against the p-values (`betting.py`).
While incoming and validation samples are exchangeable, the wealth reaches 1 / level with a probability of at
most `level`, however long the monitor runs.

An alarm says that something changed; it comes some samples after the change. The first sample that is unlike
validation is estimated as in CUSUM (Page, "Continuous inspection schemes", 1954): a bet on one kind of change
loses on unchanged samples and wins on changed ones, so that the sum of its logarithms is least right before
the change.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pluribus.monitoring.betting import Bet, Wealth, linear
from pluribus.monitoring.conformal import Array, ConformalStream, finite_scores
from pluribus.ranges import check

LEVEL = 0.01
FINE, RELATIVE = 1e-6, 1e-6
BOUNDED = ("max_probability", "entropy", "mutual_information", "variation_ratio", "max_logit")
"""Scores whose rounding errors do not shrink with their size: differences of numbers near 1."""


@dataclass(frozen=True)
class Alarm:
    """Incoming samples are no longer like those of validation.

    Attributes:
        sample: The sample, counted from 1, at which the wealth reached 1 / level.
        since: The estimated first sample that is unlike validation.
        stranger: Whether samples became stranger, or else less strange.
    """

    sample: int
    since: int
    stranger: bool

    def __str__(self) -> str:
        """Return a sentence."""
        change = "stranger" if self.stranger else "less strange"
        return (
            f"from about sample {self.since} on, samples are {change} than validation samples "
            f"(alarm at sample {self.sample})"
        )


class Turning:
    """The sample after which a bet gained: where the sum of its logarithms was least.

    Args:
        bet: On one kind of change.
    """

    def __init__(self, bet: Bet) -> None:
        self.bet = bet
        self.sum = self.least = 0.0
        self.samples = self.after = 0

    def add(self, p_values: Array) -> None:
        """Take the p-values of samples in their order."""
        if not len(p_values):
            return
        sums = self.sum + np.cumsum(np.log(self.bet(p_values)))
        place = int(sums.argmin())
        if sums[place] < self.least:
            self.least, self.after = float(sums[place]), self.samples + place + 1
        self.sum = float(sums[-1])
        self.samples += len(p_values)

    @property
    def gain(self) -> float:
        """Return how much the bet gained since then, as a logarithm."""
        return self.sum - self.least


class DriftMonitor:
    """Watch the scores of incoming samples.

    Args:
        reference: Scores of validation samples that the network was not trained on; `ensemble.calibrate`
            stores them as `ensemble.calibration.reference`.
        level: Probability of an alarm on samples like those of validation, in (0, 1).
        score: The name of the score, such as `mutual_information`: it decides how scores are rounded.
        seed: Of the random numbers that break ties.

    Attributes:
        alarm: The alarm, or None so far. It stays.
        samples: How many scores were added.

    Example:
        >>> monitor = DriftMonitor([0.1, 0.2, 0.3, 0.4] * 50, score="entropy")
        >>> monitor.add([0.9] * 100)
        >>> print(monitor.alarm)
        from about sample 1 on, samples are stranger than validation samples (alarm at sample 3)
    """

    def __init__(
        self, reference: Iterable[float], level: float = LEVEL, score: str = "", seed: int = 0
    ) -> None:
        check("level", level, float, above=0, below=1)
        scores = finite_scores(reference, "reference scores")
        self.level = level
        self.stream = ConformalStream(scores, _grain(scores, score), seed=seed)
        self.wealth = Wealth()
        self.turnings = {True: Turning(linear(-1)), False: Turning(linear(1))}
        self.alarm: Alarm | None = None

    @property
    def samples(self) -> int:
        """Return how many scores were added."""
        return self.wealth.steps

    def add(self, scores: Iterable[float]) -> None:
        """Take the scores of samples, in the order in which they came.

        Raises:
            InputError: A score is NaN or infinite; none was taken then.
        """
        p_values = self.stream.p_values(finite_scores(scores, "scores"))
        before = self.samples
        reached = self.wealth.bet(p_values) >= -math.log(self.level)
        if self.alarm is None and reached.any():
            place = int(reached.argmax()) + 1
            # Samples after the alarm must not move the estimate of the first strange one.
            self._turn(p_values[:place])
            self.alarm = self._alarm(before + place)
        elif self.alarm is None:
            self._turn(p_values)

    def _turn(self, p_values: Array) -> None:
        for turning in self.turnings.values():
            turning.add(p_values)

    def _alarm(self, sample: int) -> Alarm:
        stranger = max(self.turnings, key=lambda kind: self.turnings[kind].gain)
        return Alarm(sample, self.turnings[stranger].after + 1, stranger)

    def to_dict(self) -> dict[str, Any]:
        """Return the state as a value that JSON can hold."""
        alarm = self.alarm
        return {
            "level": self.level,
            "samples": self.samples,
            "log_wealth": self.wealth.log,
            "log_wealth_of_alarm": -math.log(self.level),
            "alarm": None if alarm is None else vars(alarm) | {"message": str(alarm)},
        }


def _grain(scores: Array, name: str) -> float:
    """Return the difference below which two scores count as equal."""
    if name in BOUNDED:
        return FINE
    spread = float(abs(scores).mean())
    # All scores are 0 where all members are one network: any grain is right then.
    return RELATIVE * spread if spread > 0 else FINE
