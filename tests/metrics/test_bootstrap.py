"""Bootstrap: seeded, near the intervals of theory, and of the metric that it names."""

import math
from dataclasses import replace

import numpy as np
import pytest

from pluribus.metrics import METRICS, bootstrap_intervals
from pluribus.metrics.bootstrap import (
    known_mean,
    mean_of,
    mean_recall,
    percentile_interval,
    sample_counts,
    share_of,
)
from pluribus.metrics.threshold import Threshold
from tests.metrics.examples import answers, classes, numbers, points


def test_the_interval_of_a_mean_is_that_of_theory():
    values = np.random.default_rng(3).normal(size=400)
    low, high = percentile_interval(mean_of(values), 400, draws=4000)
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.06)
    assert (low + high) / 2 == pytest.approx(values.mean(), abs=0.01)


def test_draws_are_the_same_in_every_run():
    sample_counts.cache_clear()
    first = sample_counts(30, 7)
    sample_counts.cache_clear()
    assert np.array_equal(first, sample_counts(30, 7))
    assert (first.sum(1) == 30).all()


def test_large_sets_are_drawn_in_parts(monkeypatch):
    values = np.random.default_rng(0).normal(size=50)
    whole = percentile_interval(mean_of(values), 50)
    monkeypatch.setattr("pluribus.metrics.bootstrap.AT_ONCE", 120)
    assert percentile_interval(mean_of(values), 50) == pytest.approx(whole)


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (classes(80, 3), {"accuracy", "balanced_accuracy", "auroc", "auprc", "nll", "brier"}),
        (answers(80), {"accuracy", "balanced_accuracy", "auroc", "auprc", "nll", "brier"}),
        (numbers(80), {"rmse", "mae", "gaussian_nll", "crps"}),
        (points(80, 1), {"rmse", "mae"}),
    ],
)
def test_intervals_hold_the_metrics_that_they_name(made, names):
    found = bootstrap_intervals(*made)
    assert set(found) == names
    for name, (low, high) in found.items():
        assert low < METRICS[name](*made) < high


def test_statistics_of_all_samples_once_are_the_metrics():
    prediction, target = classes(90, 3)
    labels, truth, once = prediction.labels.numpy(), target.numpy(), np.ones((1, 90))
    assert mean_recall(labels, truth)(once)[0] == pytest.approx(
        METRICS["balanced_accuracy"](prediction, target)
    )
    assert share_of(labels == truth, truth == 1)(once)[0] == (labels[truth == 1] == 1).mean()


def test_draws_without_a_value_do_not_count():
    nothing = share_of(np.array([True, False]), np.array([False, False]))
    assert all(map(math.isnan, percentile_interval(nothing, 2)))
    always = mean_of(np.array([1.0, 1.0]))
    assert known_mean([nothing, always])(np.ones((3, 2))).tolist() == [1, 1, 1]


def test_pixels_labels_and_huge_sets_have_no_intervals(monkeypatch):
    assert bootstrap_intervals(*classes(9, 3, 2, 2)) == {}
    assert bootstrap_intervals(*answers(9, 4)) == {}
    assert bootstrap_intervals(*numbers(9, 4)) == {}
    monkeypatch.setattr("pluribus.metrics.bootstrap.MOST_SAMPLES", 8)
    assert bootstrap_intervals(*classes(9, 3)) == {}


def test_one_logit_for_each_sample_has_the_intervals_of_one_answer():
    prediction, target = answers(80)
    column, truth = replace(prediction, members=prediction.members[..., None]), target[:, None]
    assert column.member_log_probabilities.ndim == 4
    assert bootstrap_intervals(column, truth) == bootstrap_intervals(prediction, target) != {}
    found = Threshold(0.5)
    assert found.intervals(column, truth) == found.intervals(prediction, target) != {}
