"""Workers: axes of Optuna, budgets, repeated and failing configurations, and early stopping."""

import random

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from pluribus.axes import Between, OneOf
from pluribus.comparison import locking
from pluribus.errors import SettingError
from pluribus.search import Halving
from pluribus.search import worker as module
from pluribus.search.worker import distribution, draw_evenly
from tests.search.cases import small_search


def test_axes_become_distributions():
    assert distribution(Between(2, 8)) == IntDistribution(2, 8)
    assert distribution(Between(0.1, 1.0, log=True)) == FloatDistribution(0.1, 1.0, log=True)
    assert distribution(OneOf(("a", "b"))) == CategoricalDistribution(("a", "b"))


def test_even_draws_stay_on_their_axis():
    generator = random.Random(0)
    assert {draw_evenly(Between(1, 3), generator) for _ in range(50)} == {1, 2, 3}
    assert all(0.1 <= draw_evenly(Between(0.1, 1.0, log=True), generator) <= 1 for _ in range(50))
    assert all(2 <= draw_evenly(Between(2.0, 4.0), generator) <= 4 for _ in range(50))


def test_configuration_beyond_the_budget_is_never_trained(tmp_path):
    space = {"single": {}, "deep_ensembles": {"members": [2, 9]}, "enumerated": ["deep_ensembles"]}
    study = small_search(tmp_path, space=space, budget="parameters<=3x", trials=2)
    assert sorted(trial.label for trial in study.complete) == ["deep_ensembles(members=2)", "single"]
    skipped = [trial for trial in study.trials if trial.state == "skipped"]
    assert all("budget: parameters 9 ×" in t.reason or "repeated" in t.reason for t in skipped)
    assert not list((tmp_path / "runs").glob("*-9*"))
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_budget_that_nothing_meets_is_an_error_and_trains_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 2)
    monkeypatch.setattr(module, "ATTEMPTS", 3)
    with pytest.raises(SettingError, match=r"a budget must allow .* The nearest is"):
        small_search(tmp_path, budget="parameters<=0.5x")
    assert not (tmp_path / "runs").exists()


def test_space_with_too_few_configurations_is_an_error_and_keeps_its_trials(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 2)
    monkeypatch.setattr(module, "ATTEMPTS", 3)
    with pytest.raises(SettingError, match="as many different configurations"):
        small_search(tmp_path, space={"single": {}}, trials=2)
    assert len(small_search(tmp_path, space={"single": {}}, trials=1).complete) == 1


def test_configurations_that_fail_are_recorded_and_end_the_search(tmp_path, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(module, "run_candidate", fail)
    monkeypatch.setattr(module, "MOST_FAILURES", 2)
    with pytest.raises(SettingError, match="2 failed, the last with: RuntimeError: out of memory"):
        small_search(tmp_path)
    monkeypatch.undo()
    # The study is intact: the trials that failed do not count.
    assert len(small_search(tmp_path, trials=2).complete) == 2


def test_full_disk_ends_the_search_and_the_trial_is_run_again(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "run_candidate", full)
    with pytest.raises(OSError, match="No space left"):
        small_search(tmp_path, trials=1)
    monkeypatch.undo()
    study = small_search(tmp_path, trials=1)
    assert [trial.state for trial in study.trials] == ["complete"]
    assert locking


def test_halving_stops_trials_that_others_are_better_than(tmp_path, monkeypatch):
    monkeypatch.setattr(Halving, "stops", lambda self, losses, others: len(others) == 1)
    study = small_search(tmp_path, halving=Halving(keep=2, rungs=1))
    assert sorted(trial.state for trial in study.trials if trial.state != "skipped") == [
        *["complete"] * 2,
        "halved",
    ]
    stopped = next(trial for trial in study.trials if trial.state == "halved")
    assert stopped.reason == "after epoch 1 of 2"
