"""Scores against scikit-learn, and by hand where it is silent: ties, absent classes, sure mistakes."""

import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn
from torch.testing import assert_close

from pluribus.errors import SettingError
from pluribus.metrics import accuracy, brier, macro_f1, nll, top_k_accuracy
from tests.metrics.examples import answers, classes, stated, sure


def flat_arrays(prediction, target):
    """Probabilities `[samples, outcomes]`, labels and targets as arrays."""
    probabilities = prediction.log_probabilities.exp().movedim(1, -1).flatten(0, -2)
    return probabilities.numpy(), probabilities.numpy().argmax(1), target.flatten().long().numpy()


@pytest.mark.parametrize("made", [classes(), classes(20, 7, 3, 4), answers(), answers(50, 6)])
def test_scores_are_those_of_scikit_learn(made):
    probabilities, labels, target = flat_arrays(*made)
    assert_close(accuracy(*made), sklearn.accuracy_score(target, labels))
    assert_close(macro_f1(*made), sklearn.f1_score(target, labels, average="macro"))
    assert_close(nll(*made), sklearn.log_loss(target, probabilities, labels=range(probabilities.shape[1])))
    one_hot = np.eye(probabilities.shape[1])[target]
    assert_close(brier(*made), np.square(probabilities - one_hot).sum(1).mean().item())


@pytest.mark.parametrize("k", [1, 2, 5, 6])
def test_top_k_is_that_of_scikit_learn(k):
    probabilities, _, target = flat_arrays(*(made := classes(outcomes=7, seed=3)))
    expected = sklearn.top_k_accuracy_score(target, probabilities, k=k, labels=range(7))
    assert_close(top_k_accuracy(*made, k=k), float(expected))


def test_brier_is_twice_the_binary_score_of_scikit_learn():
    prediction, target = answers()
    assert_close(brier(prediction, target), 2 * sklearn.brier_score_loss(target, prediction.probabilities))


def test_of_equally_probable_classes_the_first_come_first():
    prediction = stated([[0.2] * 5] * 5)
    hits = [top_k_accuracy(prediction, torch.arange(5), k=k) for k in range(1, 6)]
    assert hits == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert accuracy(prediction, torch.arange(5)) == hits[0]


def test_all_classes_are_enough_for_any_target():
    assert top_k_accuracy(*classes(outcomes=3), k=5) == 1.0


def test_a_prediction_that_is_sure_and_right_has_the_best_scores():
    target = torch.tensor([0, 2, 1, 2])
    prediction = sure(target[None], 3)
    assert (accuracy(prediction, target), macro_f1(prediction, target)) == (1.0, 1.0)
    assert [str(score(prediction, target)) for score in (nll, brier)] == ["0.0", "0.0"]


def test_a_prediction_that_is_sure_and_wrong_has_the_worst():
    prediction, target = sure([[0, 2, 1, 2]], 3), torch.tensor([1, 1, 2, 0])
    assert (accuracy(prediction, target), macro_f1(prediction, target)) == (0.0, 0.0)
    assert (nll(prediction, target), brier(prediction, target)) == (1000.0, 2.0)


def test_a_class_without_targets_and_predictions_does_not_count():
    prediction, target = sure([[0, 0, 1, 1]], 9), torch.tensor([0, 0, 1, 0])
    assert_close(macro_f1(prediction, target), (4 / 5 + 2 / 3) / 2)
    assert_close(macro_f1(prediction, target), sklearn.f1_score(target, prediction.labels, average="macro"))


def test_one_class_alone_can_be_scored():
    prediction, target = stated([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 0])
    assert accuracy(prediction, target) == 0.5
    assert_close(macro_f1(prediction, target), (2 / 3 + 0) / 2)
    assert_close(nll(prediction, target), -(math.log(0.9) + math.log(0.4)) / 2)
    assert_close(brier(prediction, target), 0.01 + 0.36)


def test_ignored_pixels_do_not_count():
    prediction, target = classes(5, 3, 4)
    masked = target.clone()
    masked[:, 2:] = -100
    part = type(prediction)(prediction.members[..., :2], prediction.weights)
    for score in (accuracy, top_k_accuracy, macro_f1, nll, brier):
        assert_close(score(prediction, masked), score(part, target[:, :2]))


def test_no_k_is_refused():
    with pytest.raises(SettingError, match="k must be at least 1, got 0"):
        top_k_accuracy(*classes(), k=0)
