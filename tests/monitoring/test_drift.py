"""DriftMonitor: alarms on planted shifts, from the right sample on, and rarely without one."""

import subprocess
import sys

import numpy as np
import pytest

from pluribus.errors import InputError, SettingError
from pluribus.monitoring import Alarm, DriftMonitor
from pluribus.monitoring.betting import linear
from pluribus.monitoring.drift import Turning


def test_exchangeable_data_raise_no_more_alarms_than_the_level_allows():
    alarms = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        # A small reference makes p-values of an unchanging bag depend on one another most.
        scores = random.gamma(2, size=100 + 400)
        monitor = DriftMonitor(scores[:100], level=0.01, seed=seed)
        monitor.add(scores[100:])
        alarms += monitor.alarm is not None
    # At 1 % there are on average at most one of a hundred; more than four has a probability of 0.4 %.
    assert alarms <= 4


@pytest.mark.parametrize(("factor", "stranger"), [(1.5, True), (3.0, True), (0.6, False)])
def test_a_planted_shift_is_reported_within_a_few_hundred_samples(factor, stranger):
    for seed in range(3):
        random = np.random.default_rng(seed)
        monitor = DriftMonitor(random.gamma(2, size=1000), seed=seed)
        monitor.add(random.gamma(2, size=500))
        assert monitor.alarm is None
        monitor.add(random.gamma(2, size=300) * factor)
        assert monitor.alarm is not None
        assert 500 < monitor.alarm.sample <= 800
        assert abs(monitor.alarm.since - 501) < 100
        assert monitor.alarm.stranger is stranger


def test_chunks_do_not_change_the_result():
    random = np.random.default_rng(5)
    reference, scores = random.normal(size=300), random.normal(size=400) + np.repeat([0, 2], 200)
    whole, parts = DriftMonitor(reference), DriftMonitor(reference)
    whole.add(scores)
    for score in scores:
        parts.add([score])
    parts.add([])
    assert whole.alarm == parts.alarm
    assert whole.wealth.log == pytest.approx(parts.wealth.log)


def test_an_alarm_stays_and_is_a_sentence():
    monitor = DriftMonitor(np.zeros(200), score="entropy")
    monitor.add(np.ones(100))
    first = monitor.alarm
    monitor.add(np.zeros(500))
    assert monitor.alarm == first
    assert first.since == 1
    assert str(first).startswith("from about sample 1 on, samples are stranger than validation samples")
    assert monitor.to_dict()["alarm"]["message"] == str(first)
    assert monitor.to_dict()["samples"] == 600


def test_scores_that_are_all_alike_raise_no_alarm():
    monitor = DriftMonitor(np.zeros(200))
    monitor.add(np.zeros(500))
    assert monitor.alarm is None
    assert "less strange" in str(Alarm(9, 3, False))


def test_bad_arguments_are_refused():
    with pytest.raises(SettingError, match=r"level must be below 1, got 1\.0"):
        DriftMonitor([0.0], level=1.0)
    monitor = DriftMonitor([0.0])
    with pytest.raises(InputError, match="scores must be finite"):
        monitor.add([0.0, float("inf")])
    assert monitor.samples == 0


def test_turning_is_the_last_sample_before_the_gain():
    turning = Turning(linear(-1))
    turning.add(np.array([0.9, 0.9, 0.1, 0.1]))
    turning.add(np.array([0.1]))
    assert (turning.after, turning.samples) == (2, 5)
    assert turning.gain == pytest.approx(3 * np.log(1.4))


def test_monitoring_loads_no_torch():
    code = "import sys, pluribus.monitoring; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
