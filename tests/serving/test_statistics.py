"""Statistics: the text format of Prometheus, means and drift."""

import re

import numpy as np
import pytest

from pluribus.monitoring import DriftMonitor
from pluribus.serving.statistics import RECENT, Histogram, Mean, Statistics

LINE = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? -?[0-9.e+-]+(inf|nan)?')


def outputs(count):
    return {
        "entropy": np.full(count, 0.5),
        "mutual_information": np.full((count, 2), 0.25),
        "flagged": np.arange(count) == 0,
        "ood_score": np.append(np.full(count - 1, 9.0), np.nan),
    }


def test_every_line_has_the_form_of_prometheus():
    statistics = Statistics(list(outputs(2)), DriftMonitor([1.0, 2.0]))
    statistics.answered("predict", 200, 0.003)
    statistics.watch(outputs(4), 4)
    text = statistics.text(3, 5)
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith("# ") or LINE.fullmatch(line), line
    # Each metric is introduced once.
    types = re.findall("# TYPE ([a-z_]+) ", text)
    assert len(set(types)) == len(types)
    assert 'pluribus_requests_total{route="predict",status="200"} 1' in text
    assert 'pluribus_request_seconds_bucket{le="0.005"} 1' in text
    assert "pluribus_batch_samples_sum 4" in text
    assert "pluribus_queue_length 3" in text
    assert "pluribus_flagged_recent_mean 0.25" in text
    assert "pluribus_mutual_information_sum 1.0" in text
    # One score is NaN.
    assert "pluribus_drift_samples 3" in text


def test_drift_is_reported():
    statistics = Statistics(["ood_score"], DriftMonitor(np.zeros(300), score="entropy"))
    assert "pluribus_drift_alarm 0" in statistics.text(0, 0)
    for _ in range(20):
        statistics.watch(outputs(10), 10)
    assert "pluribus_drift_alarm 1" in statistics.text(0, 0)
    assert "pluribus_drift_since_sample 1" in statistics.text(0, 0)
    assert "drift" not in Statistics(["entropy"], None).text(0, 0)


def test_a_bound_belongs_to_its_bucket():
    histogram = Histogram((1.0, 2.0))
    for value in (1.0, 1.5, 2.0, 7.0):
        histogram.add(value)
    assert (histogram.counts, histogram.count) == ([1, 2, 1], 4)


def test_the_recent_mean_forgets():
    mean = Mean()
    assert mean.recent == 0
    mean.add([5.0] * RECENT + [float("nan")])
    mean.add([1.0] * RECENT)
    assert mean.recent == pytest.approx(1)
    assert (mean.count, mean.sum) == (2 * RECENT, 6 * RECENT)
