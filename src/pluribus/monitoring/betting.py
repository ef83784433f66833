"""Bet against uniform p-values: wealth that grows only if they are not uniform.

Vovk et al., "Retrain or not retrain: conformal test martingales for change-point detection", 2021.

A betting function f is at least 0 and has the integral 1 over [0, 1]. Wealth starts at 1 and is multiplied by
f(p) for each p-value. If p-values are independent and uniform, it is a martingale, and by Ville's inequality

    P(wealth ever reaches 1 / level) ≤ level                                              (1)

for a stream of any length. Nobody knows beforehand how data will change, and when, so the wealth is divided:

    bets        1 (wait), 1 ± (p − 1/2), and κ p^(κ−1) and its mirror image for κ = 1/2 and 1/4
    switching   at each step every bet gives the share J of its wealth to all bets alike, for J in `RATES`
    reserve     half of the initial wealth is cash; 1 / (1 + t / 1000) of it is still kept at step t

Sums and switches of martingales are martingales, so that Eq. (1) holds. The reserve is what makes a change
visible that comes after a million samples. Bets on uniform p-values lose; wealth that was invested at the
start is then nearly gone. The cash that is invested around the change has lost nothing, and the sum is
behind by a factor of about 10⁹, which a clear change makes up for within some dozens of samples.

    symbol   here
    f        BETS
    J        RATES

Deviation from the paper: power bets beside the linear ones, and the reserve.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Bet = Callable[[Array], Array]
"""Returns by which factor wealth grows, for each of many p-values."""


def linear(slope: float) -> Bet:
    """Return the bet `1 + slope (p − 1/2)`, for a slope in [−2, 2]."""
    return lambda p: 1.0 + slope * (p - 0.5)


def power(exponent: float) -> Bet:
    """Return the bet `κ p^(κ−1)`, for an exponent κ in (0, 1): much on p-values near 0."""
    return lambda p: exponent * np.maximum(p, TINY) ** (exponent - 1)


def mirrored(bet: Bet) -> Bet:
    """Return a bet on p-values near 1 from one on p-values near 0."""
    return lambda p: bet(1.0 - p)


TINY = 1e-12
"""Least p-value that powers take: the mirror image of 1 would be infinite."""
STRANGER: tuple[Bet, ...] = (linear(-1), power(0.5), power(0.25))
"""Bets on samples that are stranger than those of validation."""
PLAINER: tuple[Bet, ...] = (linear(1), mirrored(power(0.5)), mirrored(power(0.25)))
"""Bets on samples that are less strange than those of validation."""
BETS: tuple[Bet, ...] = (linear(0), *STRANGER, *PLAINER)
RATES = (1e-4, 1e-3, 1e-2, 1e-1)
RESERVE = 1000.0
"""Samples until half of the cash is invested."""
FIRST = 0.5
"""Share of the wealth that is invested at once: many changes are there from the first sample on, and a factor
of two costs a few samples."""


class Wealth:
    """The wealth of all bets, in logarithms: it may exceed all floats.

    Attributes:
        log: Logarithm of the wealth.
        steps: How many p-values were bet on.
    """

    def __init__(self) -> None:
        self.log = 0.0
        self.steps = 0
        rates = np.array(RATES)
        self.switch = rates[:, None]
        # Shares of the invested wealth by rate and bet; their sum is kept at 1, and `invested` scales it.
        self.shares = np.full((len(RATES), len(BETS)), 1.0 / (len(RATES) * len(BETS)))
        self.invested = math.log(FIRST)
        self.cash = 1.0 - FIRST

    def bet(self, p_values: Array) -> Array:
        """Bet on p-values in (0, 1], one after another, and return the logarithm of the wealth after each."""
        payoffs = np.stack([bet(p_values) for bet in BETS], axis=1)
        logs = np.empty(len(p_values))
        for place, payoff in enumerate(payoffs):
            self._step(payoff)
            logs[place] = self.log
        return logs

    def _step(self, payoff: Array) -> None:
        """Update the wealth by the factors of all bets."""
        self.steps += 1
        self._invest()
        totals = self.shares.sum(1, keepdims=True)
        switched = (1 - self.switch) * self.shares + self.switch * totals / len(BETS)
        grown = switched * payoff
        total = float(grown.sum())
        self.shares = grown / total
        self.invested += math.log(total)
        self.log = _log_sum(self.invested, math.log(self.cash))

    def _invest(self) -> None:
        """Move cash to the bets, as the schedule of the reserve has it, to all of them alike."""
        kept = (1.0 - FIRST) / (1.0 + self.steps / RESERVE)
        added = math.log(max(self.cash - kept, 1e-300))
        total = _log_sum(self.invested, added)
        fresh = math.exp(added - total) / self.shares.size
        self.shares = self.shares * math.exp(self.invested - total) + fresh
        self.invested, self.cash = total, kept


def _log_sum(a: float, b: float) -> float:
    """Return log(exp(a) + exp(b)) of numbers that may be beyond all floats."""
    high, low = max(a, b), min(a, b)
    return high + math.log1p(math.exp(low - high))
