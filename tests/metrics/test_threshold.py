"""Thresholds against scikit-learn's ROC curve; rates on data that the threshold has not seen."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, recall_score, roc_curve

from pluribus.metrics.threshold import Threshold, has_two_outcomes
from tests.metrics.examples import answers, classes, points, stated


@pytest.mark.parametrize("make", [lambda s: classes(200, 2, seed=s), lambda s: answers(200, seed=s)])
def test_fit_reaches_the_best_point_of_the_curve(make):
    prediction, target = make(0)
    found = Threshold.fit(prediction, target)
    scores = prediction.log_probabilities[:, 1].exp()
    false, true, _ = roc_curve(target, scores, drop_intermediate=False)
    rates = found.rates(prediction, target)
    assert rates["sensitivity"] + rates["specificity"] - 1 == pytest.approx((true - false).max())


def test_rates_match_scikit_learn():
    found = Threshold.fit(*classes(200, 2))
    prediction, target = classes(150, 2, seed=9)
    given = (prediction.probabilities[:, 1] >= found.value).long()
    rates = found.rates(prediction, target)
    assert rates["sensitivity"] == pytest.approx(recall_score(target, given))
    assert rates["specificity"] == pytest.approx(recall_score(target, given, pos_label=0))
    assert rates["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(target, given))
    for name, (low, high) in found.intervals(prediction, target).items():
        assert low < rates[name] < high


def test_a_rare_class_is_found_below_one_half():
    generator = np.random.default_rng(0)
    yes = torch.tensor(generator.random(2000) < 0.05)
    p = torch.where(yes, 0.3, 0.05) + torch.tensor(generator.random(2000) * 0.1)
    found = Threshold.fit(stated(torch.stack((1 - p, p), 1)), yes.long())
    assert 0.15 < found.value < 0.3


def test_the_threshold_lies_halfway_and_nearest_to_one_half_among_equals():
    prediction = stated([[0.9, 0.1], [0.7, 0.3], [0.3, 0.7], [0.1, 0.9]])
    assert Threshold.fit(prediction, torch.tensor([0, 0, 1, 1])).value == pytest.approx(0.5)
    # Yes, no, yes from the top: thresholds 0.8 and 0.2 are equally good but for their distance from 1/2.
    prediction = stated([[0.1, 0.9], [0.3, 0.7], [0.6, 0.4], [0.99, 0.01]])
    assert Threshold.fit(prediction, torch.tensor([1, 0, 1, 0])).value == pytest.approx(0.205)


def test_nothing_is_fitted_without_two_outcomes_and_targets_of_both():
    assert Threshold.fit(*classes(20, 3)) is None
    assert Threshold.fit(*points(20)) is None
    assert Threshold.fit(stated([[0.4, 0.6]]), torch.tensor([1])) is None
    assert has_two_outcomes(answers(3)[0])
    rates = Threshold(0.5).rates(stated([[0.4, 0.6]]), torch.tensor([1]))
    assert rates["sensitivity"] == 1
    assert math.isnan(rates["specificity"])


def test_pixels_labels_and_huge_sets_have_rates_without_intervals(monkeypatch):
    def no_draws(samples, draws):
        raise AssertionError(f"{draws} draws of {samples} pixels would fill the memory")

    monkeypatch.setattr("pluribus.metrics.bootstrap.sample_counts", no_draws)
    for made in (classes(9, 2, 4, 4), answers(9, 4)):
        found = Threshold(0.5)
        assert found.rates(*made)["sensitivity"] >= 0
        assert found.intervals(*made) == {}
    monkeypatch.setattr("pluribus.metrics.bootstrap.MOST_SAMPLES", 8)
    assert Threshold(0.5).intervals(*classes(9, 2)) == {}
