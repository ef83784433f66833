"""Solve a cost: widths for laws of multiply-adds that are known."""

import pytest

from pluribus.mechanisms.widths.solve_cost import MOST_TRIALS, solve_width


def law(width):
    return 0.2 * width**2 + 0.1 * width


def in_steps(width):
    return law(int(8 * width) / 8)


@pytest.mark.parametrize("wanted", [0.05, 1.5, 40.0])
@pytest.mark.parametrize("start", [0.1, 2.0, 30.0])
def test_width_has_the_wanted_cost(wanted, start):
    trials = []

    def counted(width):
        trials.append(width)
        return law(width)

    width = solve_width(counted, wanted, start, widest=1000)
    assert 0.99 * wanted <= law(width) <= wanted
    assert len(trials) <= MOST_TRIALS


@pytest.mark.parametrize("wanted", [0.5, 1.5, 40.0])
def test_width_is_the_largest_where_costs_come_in_steps(wanted):
    width = solve_width(in_steps, wanted, start=2.0, widest=1000)
    assert in_steps(width) <= wanted < in_steps(width + 1 / 8)


def test_width_has_a_limit():
    assert solve_width(law, 1e6, start=2.0, widest=3.0) == 3.0


def test_impossible_cost_is_refused_with_the_least():
    with pytest.raises(ValueError, match=r"^1$"):
        solve_width(lambda width: max(1.0, law(width)), 0.5, start=2.0, widest=10)
