"""Risk and coverage against a loop, over all orders of tied samples, and at both ends."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from pluribus.errors import InputError
from pluribus.metrics import aurc, excess_aurc, risk_coverage
from pluribus.metrics.selective import selective_risk
from tests.metrics.examples import answers, classes, sure


def loop(confidence, losses):
    """Risks in the order of falling confidence, sample by sample; ties as they come."""
    order = sorted(range(len(losses)), key=lambda i: -confidence[i])
    return [np.mean([losses[i] for i in order[:k]]) for k in range(1, len(losses) + 1)]


@pytest.mark.parametrize("made", [classes(), answers(40, 3)])
def test_risks_are_those_of_a_loop(made):
    prediction, target = made
    wrong = (prediction.labels != target).flatten().double().tolist()
    risks = loop(prediction.confidence.flatten().tolist(), wrong)
    found = risk_coverage(prediction, target)
    assert_close(found.coverage, torch.linspace(0, 1, len(wrong) + 1, dtype=torch.float64)[1:])
    assert_close(found.risk, torch.tensor(risks))
    assert_close(aurc(prediction, target), float(np.mean(risks)))
    assert_close(
        excess_aurc(prediction, target), float(np.mean(risks) - np.mean(loop([-w for w in wrong], wrong)))
    )


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=5))
def test_risks_of_tied_samples_are_the_mean_over_all_their_orders(pairs):
    risks = [loop(*zip(*order, strict=True)) for order in itertools.permutations(pairs)]
    confidence, losses = torch.tensor(pairs).T
    assert_close(selective_risk(confidence, losses).risk, torch.tensor(np.mean(risks, axis=0)))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
def test_no_order_is_better_than_the_ideal_one(pairs):
    confidence, losses = torch.tensor(pairs).T
    found = selective_risk(confidence, losses)
    assert (found.ideal <= found.risk + 1e-12).all()
    assert 0 <= found.excess <= found.area <= 1
    assert_close(found.risk[-1], losses.double().mean())


def test_confidence_that_puts_all_mistakes_last_has_no_excess():
    found = selective_risk(torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([0, 0, 1, 1]))
    assert_close(found.risk, torch.tensor([0, 0, 1 / 3, 1 / 2], dtype=torch.float64))
    assert_close(found.area, 5 / 24)
    assert found.excess == 0


def test_confidence_that_says_nothing_has_the_error_rate_at_every_coverage():
    prediction, target = sure([[0, 0, 0, 0]], 2), torch.tensor([0, 1, 0, 0])
    assert_close(risk_coverage(prediction, target).risk, torch.full((4,), 0.25).double())
    assert aurc(prediction, target) == 0.25


@pytest.mark.parametrize("right", [0, 1])
def test_answers_that_are_all_right_or_all_wrong_leave_nothing_to_gain(right):
    prediction = sure([[1, 1, 1]], 2)
    assert aurc(prediction, torch.full((3,), right)) == 1 - right
    assert excess_aurc(prediction, torch.full((3,), right)) == 0


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.8])
def test_the_ideal_area_of_many_samples_is_that_of_the_paper(rate):
    losses = (torch.arange(100_000) < rate * 100_000).double()
    ideal = selective_risk(torch.zeros(100_000), losses).ideal.mean().item()
    assert_close(ideal, rate + (1 - rate) * math.log(1 - rate), atol=2e-5, rtol=0)


@pytest.mark.parametrize(("confidence", "losses"), [((3,), (4,)), ((0,), (0,)), ((2, 3), (2, 3))])
def test_shapes_that_are_no_list_of_samples_are_refused(confidence, losses):
    with pytest.raises(InputError, match=r"as many, at least 1, got shapes \(.*\. Flatten both"):
        selective_risk(torch.zeros(confidence), torch.zeros(losses))
