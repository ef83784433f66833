"""Betting: bets are fair, wealth is conserved, and late changes are found."""

import math

import numpy as np
import pytest

from pluribus.monitoring.betting import BETS, Wealth, linear, mirrored, power


@pytest.mark.parametrize("bet", BETS)
def test_a_bet_has_the_integral_one(bet):
    # Substituting p = u⁸ at both ends tames the infinite values of powers.
    grid = (np.arange(200_000) + 0.5) / 200_000
    half = 0.5 * grid**8
    weight = 4 * grid**7
    assert np.mean((bet(half) + bet(1 - half)) * weight) == pytest.approx(1, abs=1e-3)
    assert bet(grid).min() >= 0


def test_bets_favour_their_side():
    p = np.array([0.01, 0.99])
    for bet in (linear(-1), power(0.5)):
        assert bet(p)[0] > 1 > bet(p)[1]
        assert mirrored(bet)(p)[1] > 1 > mirrored(bet)(p)[0]


def test_wealth_moves_between_bets_and_is_not_made(monkeypatch):
    wealth = Wealth()
    monkeypatch.setattr("pluribus.monitoring.betting.BETS", [linear(0)] * len(BETS))
    logs = wealth.bet(np.full(3000, 0.3))
    np.testing.assert_allclose(logs, 0, atol=1e-9)
    assert wealth.cash < 0.2


def test_wealth_is_that_of_a_plain_sum_over_starts():
    """A slow reference: each part of the cash that is invested is followed by itself, without logarithms."""
    p_values = np.random.default_rng(3).beta(0.7, 1, size=40)
    wealth = Wealth()
    logs = wealth.bet(p_values)
    fresh = Wealth()
    parts = [fresh.shares * 0.5]
    cash = 0.5
    for step, p in enumerate(p_values, 1):
        kept = 0.5 / (1 + step / 1000)
        parts.append(np.full_like(fresh.shares, (cash - kept) / fresh.shares.size))
        cash = kept
        payoff = np.array([bet(np.array([p]))[0] for bet in BETS])
        for place, part in enumerate(parts):
            mean = part.mean(1, keepdims=True)
            parts[place] = ((1 - fresh.switch) * part + fresh.switch * mean) * payoff
        total = cash + sum(part.sum() for part in parts)
        assert logs[step - 1] == pytest.approx(math.log(total), abs=1e-9)


def test_a_change_after_many_samples_is_found_soon():
    random = np.random.default_rng(0)
    wealth = Wealth()
    wealth.bet(random.random(20_000))
    logs = wealth.bet(random.random(200) ** 4)
    assert int((logs > math.log(100)).argmax()) in range(1, 60)


def test_wealth_beyond_all_floats_stays_a_number():
    wealth = Wealth()
    logs = wealth.bet(np.full(3000, 1e-6))
    assert 1000 < logs[-1] < math.inf
