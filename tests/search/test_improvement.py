"""The sampler that expects the greatest improvement of the hypervolume."""

import math
from collections import Counter

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState, create_trial

from pluribus.report.budget import parse_budget
from pluribus.search.front import hypervolume
from pluribus.search.improvement import ImprovementSampler, directions, improvement, scalarised
from pluribus.search.making import read_space
from pluribus.search.samplers import silence
from pluribus.search.worker import distribution

SPACE = {
    "single": {},
    "deep_ensembles": {"members": [2, 3, 4, 5, 6, 7, 8]},
    "mc_dropout": {"rate": {"low": 0.01, "high": 0.5, "log": True}, "draws": [4, 8, 16]},
}
"""Axes of these methods are found by `read_space`, as those of a space that is written by hand."""


def told(space, kind, values=None, state=TrialState.COMPLETE, attributes=None, **settings):
    """Return a trial of a method, finished or running."""
    axes = space.parameters(flat=False)
    parameters = {"method": kind} | {f"{kind}.{name}": value for name, value in settings.items()}
    return create_trial(
        state=state,
        params=parameters,
        distributions={name: distribution(axes[name]) for name in parameters},
        values=values,
        user_attrs=attributes or {},
    )


@pytest.fixture
def space():
    return read_space(SPACE)


def study_of(space, sampler, members=(2, 4, 8)):
    """Return a study in which more members are better, and dropout is bad."""
    silence()
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    study.add_trial(told(space, "single", [1.0, 1.0], attributes={"cost": {"parameters_ratio": 1.0}}))
    for count in members:
        cost = {"cost": {"parameters_ratio": float(count)}}
        study.add_trial(
            told(space, "deep_ensembles", [1 / count, float(count)], attributes=cost, members=count)
        )
    for draws, rate in ((4, 0.01), (8, 0.5), (16, 0.05)):
        cost = {"cost": {"parameters_ratio": 1.0}}
        study.add_trial(
            told(space, "mc_dropout", [3.0, float(draws)], attributes=cost, rate=rate, draws=draws)
        )
    return study


def drawn(study, space):
    """Return the parameters of the next trial, which stays open."""
    trial = study.ask()
    space.suggest(lambda name, axis: trial._suggest(name, distribution(axis)))
    return trial.params


def scores_of(sampler, study, members):
    """Return the scores of deep ensembles of these sizes, always by the same random numbers."""
    sampler.normal = np.random.default_rng(0)
    measured = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    configurations = [{"method": "deep_ensembles", "deep_ensembles.members": one} for one in members]
    return sampler._scores(measured, study.trials, study.directions, sampler.encoder.points(configurations))


@pytest.mark.parametrize("count", [2, 3])
def test_mean_over_directions_is_the_hypervolume(count):
    generator = np.random.default_rng(0)
    points = generator.random((6, count))
    along = directions(200_000, count, generator)
    mean = scalarised(points[:, None, :], 1.1, along).max(0).mean()
    factor = math.pi ** (count / 2) / (2**count * math.gamma(count / 2 + 1))
    assert factor * mean == pytest.approx(hypervolume(points.tolist(), [1.1] * count), rel=0.02)


def test_improvement_is_that_of_the_hypervolume():
    generator = np.random.default_rng(1)
    front = np.array([[0.2, 0.8], [0.6, 0.3]])
    candidates = [[0.3, 0.9], [0.4, 0.5], [0.1, 0.1]]
    along = directions(100_000, 2, generator)
    # Without doubt of the values, all draws are equal.
    values = np.repeat(np.array(candidates)[:, None, :], len(along), axis=1)
    found = improvement(front, values, along) * math.pi / 4
    before = hypervolume(front.tolist(), (1.1, 1.1))
    exact = [hypervolume([*front.tolist(), one], (1.1, 1.1)) - before for one in candidates]
    assert exact[0] == 0
    assert found == pytest.approx(exact, rel=0.02)


def test_draws_what_was_not_tried_of_the_method_that_is_good(space):
    found = Counter()
    for seed in range(4):
        study = study_of(space, ImprovementSampler(space, finished=["single"], seed=seed))
        parameters = drawn(study, space)
        found[parameters["method"]] += 1
        assert parameters.get("deep_ensembles.members") not in (2, 4, 8)
    assert found == {"deep_ensembles": 4}


def test_running_trials_are_not_drawn_again(space):
    study = study_of(space, ImprovementSampler(space, finished=["single"], seed=0))
    # Trials stay open, as with four processes at once.
    seen = [tuple(sorted(drawn(study, space).items())) for _ in range(4)]
    assert len(set(seen)) == 4


def test_what_is_being_measured_loses_most(space):
    sampler = ImprovementSampler(space, finished=["single"], seed=0)
    study = study_of(space, sampler, members=(2, 8))
    before = scores_of(sampler, study, (4, 5, 6))
    study.add_trial(told(space, "deep_ensembles", state=TrialState.RUNNING, members=5))
    left = scores_of(sampler, study, (4, 5, 6)) / before
    assert (left < 0.6).all()
    # Its neighbours may still be better than predicted; the trial itself is taken for known.
    assert left.argmin() == 1


def test_doubt_beyond_the_budget_is_not_drawn(space):
    limits = parse_budget("parameters<=3.5x")
    for seed in range(4):
        sampler = ImprovementSampler(space, limits, finished=["single", "mc_dropout"], seed=seed)
        study = study_of(space, sampler, members=(2, 5, 6, 7, 8))
        assert drawn(study, space)["deep_ensembles.members"] == 3


def test_method_that_fails_is_left(space):
    sampler = ImprovementSampler(space, finished=["single"], seed=0)
    study = study_of(space, sampler, members=())
    assert drawn(study, space)["method"] == "deep_ensembles"
    for count in (2, 3, 4, 5, 6):
        failed = {"error": "ValueError"}
        study.add_trial(
            told(space, "deep_ensembles", state=TrialState.FAIL, attributes=failed, members=count)
        )
    assert sampler._chance_measured(study.trials) == pytest.approx([1, 1 / 6, 1])


def test_infinite_losses_are_no_measurements(space):
    for seed in range(4):
        study = study_of(space, ImprovementSampler(space, finished=["single"], seed=seed))
        study.add_trial(told(space, "mc_dropout", [math.inf, 4.0], rate=0.2, draws=4))
        assert drawn(study, space)["method"] == "deep_ensembles"


def test_scores_are_multiplied_by_the_chance_of_a_measurement(space):
    sampler = ImprovementSampler(space, finished=["single"], seed=0)
    study = study_of(space, sampler)
    before = scores_of(sampler, study, (5, 6, 7))
    for count in (3, 5, 6, 7):
        attributes = {"error": "ValueError"}
        study.add_trial(
            told(space, "deep_ensembles", state=TrialState.FAIL, attributes=attributes, members=count)
        )
    # Three of seven were measured; the method begins with one of one.
    assert scores_of(sampler, study, (5, 6, 7)) == pytest.approx(before * 4 / 8)


def test_queued_parameters_stay_and_missing_ones_are_drawn(space):
    study = study_of(space, ImprovementSampler(space, seed=0))
    study.enqueue_trial({"method": "mc_dropout", "mc_dropout.draws": 8})
    parameters = drawn(study, space)
    assert parameters["method"] == "mc_dropout"
    assert parameters["mc_dropout.draws"] == 8
    assert 0.01 <= parameters["mc_dropout.rate"] <= 0.5


def test_first_trials_are_of_each_method_in_turn(space):
    silence()
    sampler = ImprovementSampler(space, finished=["single"], seed=0, startup=6)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    found = Counter(drawn(study, space)["method"] for _ in range(6))
    assert found == {"deep_ensembles": 3, "mc_dropout": 3}


def test_settings_that_are_maximised_and_shared_ones_are_modelled():
    space = read_space(
        {"single": {}, "deep_ensembles": {"members": [2, 3]}, "training": {"lr": [0.1, 0.2, 0.4]}}
    )
    silence()
    study = optuna.create_study(
        directions=["maximize", "minimize"], sampler=ImprovementSampler(space, seed=0)
    )
    for _ in range(7):
        trial = study.ask()
        found = space.suggest(lambda name, axis, trial=trial: trial._suggest(name, distribution(axis)))
        study.tell(trial, [found.training["lr"], 1.0 if found.method.kind() == "single" else 2.0])
    best = study.best_trials
    assert {trial.params["method"] for trial in best} == {"single"}
    assert {trial.params["training.lr"] for trial in best} == {0.4}


def test_improvement_beats_random_search():
    silence()
    space = read_space(
        {
            "mc_dropout": {"rate": {"low": 0.01, "high": 0.5}, "draws": [4, 8, 16]},
            "deep_ensembles": {"members": [2, 3, 4, 5, 6, 7, 8]},
        }
    )

    def measure(trial):
        found = space.suggest(lambda name, axis: trial._suggest(name, distribution(axis))).method
        if found.kind() == "deep_ensembles":
            return 1 - 0.05 * found.members, float(found.members)
        return 0.5 + abs(found.rate - 0.2) * 4 - found.draws / 100, 0.2 * found.draws

    reached = []
    for sampler in (ImprovementSampler(space, seed=1), optuna.samplers.RandomSampler(1)):
        study = optuna.create_study(sampler=sampler, directions=["minimize", "minimize"])
        study.optimize(measure, n_trials=14)
        reached.append(hypervolume([trial.values for trial in study.trials], (2, 8)))
    assert reached[0] > reached[1]
