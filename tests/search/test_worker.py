"""Workers: axes of Optuna, budgets, repeated and failing configurations, and early stopping."""

import random

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from optuna.trial import TrialState

from pluribus.axes import Between, OneOf
from pluribus.errors import SettingError, WriteError
from pluribus.search import Halving
from pluribus.search import worker as module
from pluribus.search.storage import StorageError
from pluribus.search.worker import distribution, draw_evenly
from tests.search.cases import small_search, untrained


def test_axes_become_distributions():
    assert distribution(Between(2, 8)) == IntDistribution(2, 8)
    assert distribution(Between(0.1, 1.0, log=True)) == FloatDistribution(0.1, 1.0, log=True)
    assert distribution(OneOf(("a", "b"))) == CategoricalDistribution(("a", "b"))


def test_even_draws_stay_on_their_axis():
    generator = random.Random(0)
    assert {draw_evenly(Between(1, 3), generator) for _ in range(50)} == {1, 2, 3}
    assert all(0.1 <= draw_evenly(Between(0.1, 1.0, log=True), generator) <= 1 for _ in range(50))
    assert all(2 <= draw_evenly(Between(2.0, 4.0), generator) <= 4 for _ in range(50))


@pytest.fixture
def light(monkeypatch):
    untrained(monkeypatch)


def test_configuration_beyond_the_budget_is_never_trained(tmp_path, light):
    space = {"single": {}, "deep_ensembles": {"members": [2, 9]}, "enumerated": ["deep_ensembles"]}
    study = small_search(tmp_path, space=space, budget="parameters<=3x", trials=2)
    assert sorted(trial.label for trial in study.complete) == ["deep_ensembles(members=2)", "single"]
    for trial in study.trials:
        if trial.state == "skipped":
            assert trial.reason.startswith(("budget: parameters 9 ×", "repeated"))
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_budget_that_nothing_meets_is_an_error_and_trains_nothing(tmp_path, light, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 2)
    monkeypatch.setattr(module, "ATTEMPTS", 3)
    with pytest.raises(SettingError, match=r"a budget must allow .* The nearest is single: parameters 1 ×"):
        small_search(tmp_path, budget="parameters<=0.5x")
    assert not (tmp_path / "runs").exists()


def test_seeking_a_configuration_within_the_budget_ends_in_time(tmp_path, light, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 2)
    monkeypatch.setattr(module, "FEWEST_ATTEMPTS", 4)
    monkeypatch.setattr(module, "SEEKING_SECONDS", 0.0)
    with pytest.raises(SettingError, match="none of 4 configurations is within it"):
        small_search(tmp_path, budget="multiply_adds<=0.5x")


@pytest.mark.slow
def test_affordable_configuration_is_sought_if_the_sampler_finds_none(tmp_path, light, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 1)
    space = {"deep_ensembles": {"members": {"low": 2, "high": 40}}}
    study = small_search(tmp_path, space=space, budget="parameters<=4x", trials=2, sampler="random")
    assert len(study.complete) == 2


def test_space_with_too_few_configurations_is_an_error_and_keeps_its_trials(tmp_path, light, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 2)
    monkeypatch.setattr(module, "ATTEMPTS", 3)
    with pytest.raises(SettingError, match="as many different configurations"):
        small_search(tmp_path, space={"single": {}}, trials=2)
    assert len(small_search(tmp_path, space={"single": {}}, trials=1).complete) == 1


def test_configurations_that_fail_are_recorded_and_end_the_search(tmp_path, light, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as failing:
        failing.setattr(module, "run_candidate", fail)
        failing.setattr(module, "MOST_FAILURES", 2)
        with pytest.raises(SettingError, match="2 failed, the last with: RuntimeError: out of memory"):
            small_search(tmp_path)
    # The study is intact: the trials that failed do not count.
    assert len(small_search(tmp_path, trials=2).complete) == 2


def test_full_disk_ends_the_search_and_the_trial_is_run_again(tmp_path, light, monkeypatch):
    def full(*arguments):
        raise WriteError("the disk is full")

    with monkeypatch.context() as failing:
        failing.setattr(module, "run_candidate", full)
        with pytest.raises(WriteError, match="the disk is full"):
            small_search(tmp_path, trials=1)
    study = small_search(tmp_path, trials=1)
    assert [trial.state for trial in study.trials] == ["complete"]


def test_database_that_fails_as_a_trial_ends_is_named_and_the_trial_is_run_again(
    tmp_path, light, monkeypatch
):
    store = RDBStorage.set_trial_state_values

    def full(self, trial, state, values=None):
        if state == TrialState.COMPLETE:
            raise StorageInternalError("database or disk is full")
        return store(self, trial, state, values)

    with monkeypatch.context() as failing:
        failing.setattr(RDBStorage, "set_trial_state_values", full)
        with pytest.raises(StorageError, match=r"got: database or disk is full\. Start it or free"):
            small_search(tmp_path)
    study = small_search(tmp_path)
    assert len(study.complete) == 3
    assert not {"open", "failed"} & {trial.state for trial in study.trials}


def test_objective_that_was_not_measured_is_named(tmp_path, light):
    with pytest.raises(SettingError, match="the objective brier must be measurable"):
        small_search(tmp_path, objectives="brier")


def test_halving_stops_trials_that_others_are_better_than(tmp_path, light, monkeypatch):
    monkeypatch.setattr(Halving, "stops", lambda self, losses, others: len(others) == 1)
    study = small_search(tmp_path, halving=Halving(keep=2, rungs=1))
    states = [trial.state for trial in study.trials if trial.state != "skipped"]
    assert sorted(states) == ["complete", "complete", "halved"]
    stopped = next(trial for trial in study.trials if trial.state == "halved")
    assert stopped.reason == "after epoch 1 of 2"
