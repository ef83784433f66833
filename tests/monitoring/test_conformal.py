"""Conformal p-values: uniform and independent, with ties, small references and full bags."""

import numpy as np
import pytest

from pluribus.errors import InputError
from pluribus.monitoring.conformal import ConformalStream, finite_scores


def reference_p(bag, score, uniform):
    stranger = sum(one > score for one in bag)
    ties = sum(one == score for one in bag)
    return (stranger + uniform * (ties + 1)) / (len(bag) + 1)


def test_p_values_are_those_of_the_definition():
    random = np.random.default_rng(1)
    bag = list(random.integers(0, 5, 12).astype(float))
    scores = random.integers(0, 5, 20).astype(float)
    found = ConformalStream(bag, grain=1.0, seed=7).p_values(scores)
    uniform = 1 - np.random.default_rng(7).random(20)
    for score, p, u in zip(scores, found, uniform, strict=True):
        assert p == pytest.approx(reference_p(bag, score, u))
        bag.append(score)


def test_p_values_are_uniform_and_independent_with_ties_and_a_full_bag():
    random = np.random.default_rng(0)
    pairs = []
    for seed in range(600):
        # A bag of 6, full from the start: an unchanging one would make p-values depend on one another.
        scores = random.integers(0, 4, 18).astype(float)
        pairs.append(ConformalStream(scores[:6], grain=1.0, most=6, seed=seed).p_values(scores[6:]))
    p_values = np.array(pairs)
    # Standard errors are 0.0034 of a mean, and 0.041 of a correlation.
    assert abs(p_values.mean() - 0.5) < 0.012
    assert abs((p_values < 0.1).mean() - 0.1) < 0.012
    assert abs(np.corrcoef(p_values[:, :-1].ravel(), p_values[:, 1:].ravel())[0, 1]) < 0.04
    assert abs(np.corrcoef(p_values[:, 0], p_values[:, -1])[0, 1]) < 0.13


def test_the_bag_is_sorted_and_bounded():
    stream = ConformalStream(np.arange(50.0), grain=1.0, most=60)
    stream.p_values(np.random.default_rng(0).normal(size=500) * 10)
    assert len(stream.bag) == 60
    assert stream.bag == sorted(stream.bag)


def test_rounding_errors_are_ties():
    reference = np.zeros(99)
    with_errors = ConformalStream(reference, grain=1e-6).p_values(np.full(50, 3e-8))
    without = ConformalStream(reference, grain=1e-6).p_values(np.zeros(50))
    np.testing.assert_array_equal(with_errors, without)


@pytest.mark.parametrize(
    ("scores", "message"),
    [([float("nan")], "must be finite"), ([[1.0]], r"must be numbers \[count\], got the shape \[1, 1\]")],
)
def test_scores_must_be_finite_numbers(scores, message):
    with pytest.raises(InputError, match=message):
        finite_scores(scores, "scores")


def test_an_empty_reference_is_refused():
    with pytest.raises(InputError, match="at least 1, got none"):
        ConformalStream([], grain=1.0)
