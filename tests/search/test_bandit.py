"""The method of a trial is drawn by Thompson sampling."""

from collections import Counter

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.samplers import RandomSampler
from optuna.trial import TrialState, create_trial

from pluribus.search.bandit import MethodBandit, count_by_method
from pluribus.search.worker import BUDGET

KINDS = ("single", "good", "bad")


def told(kind, values=None, state=TrialState.COMPLETE, **attributes):
    """Return a finished trial of a method."""
    space = {"method": CategoricalDistribution(KINDS)}
    return create_trial(
        state=state, params={"method": kind}, distributions=space, values=values, user_attrs=attributes
    )


@pytest.fixture
def study():
    made = optuna.create_study(directions=["minimize", "maximize"])
    made.add_trial(told("single", [1.0, 0.5]))
    for number in range(8):
        made.add_trial(told("good", [0.5 - number / 100, 0.9 - number / 100]))
        made.add_trial(told("bad", [2.0 + number, 0.1]))
    return made


def test_front_and_tries_are_counted_by_method(study):
    study.add_trial(told("bad", state=TrialState.PRUNED))
    study.add_trial(told("bad", [0.0, 1.0], **{BUDGET: 0.5}))
    # A trial that was lost with its process does not count; one that failed does.
    study.add_trial(told("single", state=TrialState.FAIL))
    study.add_trial(told("single", state=TrialState.FAIL, error="ValueError"))
    on_front, tried = count_by_method(study, besides=0)
    assert on_front == {"good": 8}
    assert tried == {"good": 8, "bad": 10, "single": 1}


def test_method_on_the_front_is_drawn_most_and_finished_ones_never(study):
    study.sampler = MethodBandit(RandomSampler(0), finished=["single"], seed=0)
    drawn = Counter(study.ask().suggest_categorical("method", KINDS) for _ in range(10))
    assert drawn["good"] >= 8
    assert drawn["single"] == 0


def test_method_without_trials_is_tried():
    bandit = MethodBandit(RandomSampler(0), seed=0)
    drawn = Counter(bandit.choose(["new", "bad"], {}, {"bad": 20}) for _ in range(50))
    assert drawn["new"] > 40


def test_a_space_of_finished_methods_alone_is_drawn_all_the_same(study):
    study.sampler = MethodBandit(RandomSampler(0), finished=KINDS, seed=0)
    assert study.ask().suggest_categorical("method", KINDS) in KINDS
