"""Random scalarisation with Gaussian processes: the process, the encoding, and the optimum it finds."""

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from pluribus.search.front import hypervolume
from pluribus.search.mobo import GaussianProcess, MOBOSampler, choose, encode, matern
from pluribus.search.samplers import silence


def test_kernel_is_one_at_the_same_point_and_falls():
    points = np.array([[0.0], [0.5], [1.0]])
    kernel = matern(points, points, 0.5)
    assert np.diag(kernel) == pytest.approx(1)
    assert kernel[0, 1] > kernel[0, 2] > 0


def test_process_interpolates_and_knows_where_it_does_not_know():
    points = np.linspace(0, 1, 12)[:, None]
    values = np.sin(6 * points[:, 0])
    process = GaussianProcess(points, values)
    mean, std = process.predict(np.array([[0.5], [3.0]]))
    assert mean[0] == pytest.approx(np.sin(3), abs=0.1)
    assert std[0] < 0.2 < std[1]


def test_parameters_become_numbers_between_zero_and_one():
    space = {
        "a": CategoricalDistribution(("x", "y")),
        "b": FloatDistribution(0.01, 1.0, log=True),
        "c": IntDistribution(1, 5),
    }
    assert encode({"a": "y", "b": 0.1, "c": 5}, space) == pytest.approx([0, 0.5**0.5, 0.5, 1])


def test_choice_takes_the_best_of_one_objective():
    points = np.linspace(0, 1, 15)[:, None]
    losses = (points - 0.7) ** 2
    found = choose(points, losses, points, np.random.default_rng(0))
    assert abs(points[found, 0] - 0.7) < 0.1


@pytest.mark.slow
def test_mobo_beats_random_search_on_a_smooth_problem():
    silence()

    def objective(trial):
        x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
        n = trial.suggest_int("n", 1, 5)
        kind = trial.suggest_categorical("kind", ("a", "b"))
        off = (y - 0.3) ** 2 + (0.0 if kind == "a" else 0.3) + abs(n - 3) * 0.1
        return x**2 + off, (x - 1) ** 2 + off

    reached = {}
    for sampler in (MOBOSampler(startup=6, seed=1), optuna.samplers.RandomSampler(1)):
        study = optuna.create_study(sampler=sampler, directions=["minimize", "minimize"])
        study.optimize(objective, n_trials=16)
        reached[type(sampler)] = hypervolume([trial.values for trial in study.trials], (2, 2))
    assert reached[MOBOSampler] > reached[optuna.samplers.RandomSampler]
