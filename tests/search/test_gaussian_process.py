"""Gaussian process over configurations of several methods."""

import numpy as np
import pytest

from pluribus.search import gaussian_process as module
from pluribus.search.gaussian_process import Alike, GaussianProcess, Parameters, Points


def points(rows, kind=0, shared=()):
    """Return points of one method; `shared` names the columns that all methods have."""
    own = np.array(rows, dtype=float).reshape(len(rows), -1)
    kinds = np.full(len(rows), kind)
    return Points(kinds, own, np.full(len(rows), float(own.shape[1])), own[:, list(shared)])


def test_methods_say_nothing_about_each_other_but_for_shared_settings():
    one = Parameters(offset=0.5, spread=1.0, length=0.5, noise=0.1)
    a, b = points([[0.2], [0.9]]), points([[0.2], [0.9]], kind=1)
    assert Alike(a, b).kernel(one) == pytest.approx(0)
    assert Alike(a, a).kernel(one)[0, 0] == pytest.approx(Alike(a, a).variance(one)) == pytest.approx(1.5)
    a, b = points([[0.2], [0.9]], shared=[0]), points([[0.2], [0.9]], kind=1, shared=[0])
    found = Alike(a, b).kernel(one)
    assert found[0, 0] == pytest.approx(1)
    assert 0 < found[0, 1] < 0.5
    assert np.diag(Alike(a, a).kernel(one)) == pytest.approx(Alike(a, a).variance(one))


def test_process_interpolates_and_knows_where_it_does_not_know():
    x = np.linspace(0, 1, 12)[:, None]
    process = GaussianProcess(points(x), np.sin(6 * x[:, 0]))
    mean, std = process.predict(points([[0.5], [3.0]]))
    assert mean[0] == pytest.approx(np.sin(3), abs=0.1)
    assert std[0] < 0.2 < std[1]
    # Another method is as unknown as at first.
    mean, std = process.predict(points([[0.5]], kind=1))
    assert mean[0] == pytest.approx(0)
    assert std[0] ** 2 == pytest.approx(process.parameters.offset + process.parameters.spread)


def test_values_without_structure_are_noise():
    values = np.random.default_rng(0).standard_normal(40)
    process = GaussianProcess(points(np.linspace(0, 1, 40)[:, None]), values)
    assert process.parameters.noise == 0.3
    assert np.abs(process.predict(points([[0.5]]))[0]) < 0.7


def test_parameters_of_many_points_are_those_of_some(monkeypatch):
    x = np.linspace(0, 1, 40)[:, None]
    values = np.sin(6 * x[:, 0])
    expected = module.best_parameters(points(x[::4]), values[::4])
    monkeypatch.setattr(module, "MOST_FITTED", 10)
    process = GaussianProcess(points(x), values)
    assert process.parameters == expected
    assert process.predict(points([[0.5]]))[0] == pytest.approx(np.sin(3), abs=0.05)


def test_predictions_that_came_true_are_known_afterwards():
    process = GaussianProcess(points([[0.0], [0.1], [0.2]]), np.array([-1.0, 0.0, 1.0]))
    new = points([[0.8]])
    before, wide = process.predict(new)
    after, narrow = process.believing(new).predict(new)
    assert after == pytest.approx(before, abs=0.1)
    assert narrow < 0.7 * wide
