"""Diversity against loops over pairs of members, and where all agree or all differ."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pluribus.likelihood import Categorical, Point
from pluribus.metrics import METRICS, ambiguity, disagreement, error_correlation, mutual_information
from tests.metrics.examples import answers, classes, mixed, normal, numbers, points, sure


def over_pairs(prediction, value):
    """Mean of a value of two members over all pairs, by their weights."""
    weights = prediction.weights.tolist()
    pairs = [
        (weights[i] * weights[j], value(i, j)) for i, j in itertools.permutations(range(len(weights)), 2)
    ]
    return float(sum(weight * found for weight, found in pairs) / sum(weight for weight, _ in pairs))


@pytest.mark.parametrize("made", [classes(members=4), answers(50, 3), classes(20, 3, 5, members=2)])
def test_labels_are_compared_pair_by_pair(made):
    labels = made[0].member_labels.flatten(1)
    expected = over_pairs(made[0], lambda i, j: (labels[i] != labels[j]).double().mean().item())
    assert_close(disagreement(*made), expected)


@pytest.mark.parametrize("made", [classes(members=4), answers(50, 3), numbers(40, 2), points(members=5)])
def test_errors_are_correlated_pair_by_pair(made):
    prediction, target = made
    if hasattr(prediction, "means"):
        errors = (prediction.means - target).flatten(1).numpy()
    else:
        errors = (prediction.member_labels != target).flatten(1).numpy()
    expected = over_pairs(prediction, lambda i, j: np.corrcoef(errors[i], errors[j])[0, 1])
    assert_close(error_correlation(prediction, target), expected)


@pytest.mark.parametrize("members", [2, 3, 7])
def test_equal_members_have_no_diversity(members):
    logits, target = normal(1, 60, 4).expand(members, 60, 4), classes(60)[1]
    prediction = Categorical().prediction(logits)
    assert disagreement(prediction, target) == 0
    assert_close(mutual_information(prediction, target), 0.0, atol=1e-12, rtol=0)
    assert_close(error_correlation(prediction, target), 1.0)


def test_members_that_never_agree_have_all_diversity():
    prediction, target = sure([[0, 1, 2], [1, 2, 0], [2, 0, 1]], 3), torch.tensor([0, 0, 0])
    assert disagreement(prediction, target) == 1
    assert_close(mutual_information(prediction, target), math.log(3), rtol=1e-6, atol=0)
    assert_close(error_correlation(prediction, target), -0.5)


def test_members_that_err_in_turns_are_correlated_against_one_another():
    prediction = sure([[0, 0, 1, 1], [1, 1, 0, 0]], 2)
    assert error_correlation(prediction, torch.zeros(4).long()) == -1


def test_a_member_whose_errors_never_vary_correlates_with_none():
    labels = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
    target = torch.zeros(5).long()
    assert_close(error_correlation(sure(labels, 2), target), np.corrcoef(labels[:2])[0, 1].item())
    assert math.isnan(error_correlation(sure(labels[1:], 2), target))


def test_equal_errors_are_told_from_their_rounding():
    prediction = Point().prediction(torch.full((2, 11), 0.1, dtype=torch.float64))
    assert math.isnan(error_correlation(prediction, torch.full((11,), 0.7, dtype=torch.float64)))


def test_a_lone_member_has_no_pairs():
    prediction, target = classes(members=1)
    assert math.isnan(disagreement(prediction, target))
    assert math.isnan(error_correlation(prediction, target))
    assert_close(mutual_information(prediction, target), 0.0, atol=1e-12, rtol=0)
    one = Categorical().prediction(classes(members=2)[0].members, torch.tensor([1.0, 0.0]))
    assert math.isnan(disagreement(one, target))


def test_information_is_averaged_in_and_out_of_distribution():
    inside, target = classes(30)
    outside = mixed(Categorical(), 3, 20, 4, seed=5)
    assert_close(METRICS["mutual_information"](inside, target), inside.mutual_information.mean().item())
    assert_close(METRICS["mutual_information_out"](inside, outside), outside.mutual_information.mean().item())


@pytest.mark.parametrize("made", [numbers(40, 2), points(40)])
def test_the_ensembles_error_is_the_members_error_less_their_ambiguity(made):
    prediction, target = made
    members = (prediction.means - target).square().flatten(1).mean(1)
    ensemble = (prediction.mean - target).square().mean()
    assert_close(ambiguity(prediction, target), (prediction.weights @ members - ensemble).item())
