"""Discrimination against scikit-learn and torchmetrics: two classes, many, ties, absent classes."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, balanced_accuracy_score, roc_auc_score
from torchmetrics.functional.classification import multiclass_auroc, multiclass_average_precision

from pluribus.metrics import balanced_accuracy, class_auprc, class_auroc
from pluribus.metrics.discrimination import weighted_auprc, weighted_auroc
from tests.metrics.examples import answers, classes, stated


@pytest.mark.parametrize("make", [lambda: classes(200, 2), lambda: answers(200)], ids=["classes", "answers"])
def test_two_outcomes_match_scikit_learn(make):
    prediction, target = make()
    scores = prediction.log_probabilities[:, 1].exp()
    assert class_auroc(prediction, target) == pytest.approx(roc_auc_score(target, scores))
    assert class_auprc(prediction, target) == pytest.approx(average_precision_score(target, scores))
    assert balanced_accuracy(prediction, target) == pytest.approx(
        balanced_accuracy_score(target, prediction.labels)
    )


def test_many_classes_match_scikit_learn_and_torchmetrics():
    prediction, target = classes(300, 5)
    probabilities = prediction.probabilities
    wanted = roc_auc_score(target, probabilities, multi_class="ovr", average="macro")
    assert class_auroc(prediction, target) == pytest.approx(wanted)
    assert class_auroc(prediction, target) == pytest.approx(
        multiclass_auroc(probabilities, target, 5).item(), abs=1e-6
    )
    assert class_auprc(prediction, target) == pytest.approx(
        multiclass_average_precision(probabilities, target, 5).item(), abs=1e-6
    )


def test_an_absent_class_does_not_count():
    prediction, target = classes(300, 4)
    kept = target != 3
    few, known = prediction[kept.nonzero().flatten()], target[kept]
    wanted = [roc_auc_score(known == c, few.probabilities[:, c]) for c in range(3)]
    assert class_auroc(few, known) == pytest.approx(np.mean(wanted))
    assert balanced_accuracy(few, known) == pytest.approx(
        np.mean([(few.labels[known == c] == c).double().mean() for c in range(3)])
    )


def test_one_class_alone_is_undefined():
    prediction = stated([[0.4, 0.6], [0.2, 0.8]])
    assert math.isnan(class_auroc(prediction, torch.tensor([1, 1])))
    assert math.isnan(class_auprc(prediction, torch.tensor([1, 1])))


def test_equal_scores_count_half():
    prediction = stated([[0.5, 0.5]] * 4)
    assert class_auroc(prediction, torch.tensor([0, 1, 0, 1])) == 0.5


@pytest.mark.parametrize("digits", [1, 6])
def test_weighted_areas_match_repeated_samples(digits):
    generator = np.random.default_rng(0)
    scores = generator.normal(size=60).round(digits)
    positive = generator.random(60) < 0.4
    counts = generator.integers(0, 3, size=(5, 60))
    for draw, roc, recall in zip(
        counts,
        weighted_auroc(scores, positive, counts),
        weighted_auprc(scores, positive, counts),
        strict=True,
    ):
        drawn = np.repeat(np.arange(60), draw)
        assert roc == pytest.approx(roc_auc_score(positive[drawn], scores[drawn]))
        assert recall == pytest.approx(average_precision_score(positive[drawn], scores[drawn]))


def test_weighted_areas_without_both_kinds_are_undefined():
    counts = np.array([[1.0, 0.0], [0.0, 1.0]])
    for area in (weighted_auroc, weighted_auprc):
        assert np.isnan(area(np.array([0.1, 0.9]), np.array([False, True]), counts)).all()
