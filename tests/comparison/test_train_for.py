"""train_for: what is held equal between methods, and that each length is what it claims."""

import pytest
import torch
from torch import nn

from pluribus.comparison.comparison import compare
from pluribus.comparison.train_for import LONGEST, trainings, until_convergence
from pluribus.data import two_moons
from pluribus.errors import SettingError
from pluribus.methods import BatchEnsemble, DeepEnsembles, Single
from pluribus.report.groups import group_records
from pluribus.training import Training

METHODS = [Single(), DeepEnsembles(members=3), BatchEnsemble(members=2)]
USUAL = Training(steps=6, batch=20)


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.fixture(scope="module")
def task():
    return two_moons(train=60)


def lengths(task, train_for, recipes=True):
    return [one.steps for one in trainings(build, task, METHODS, USUAL, train_for, recipes)]


def test_recipes_decide_by_default(task):
    assert lengths(task, "recipe") == [6, 6, 12]
    assert lengths(task, "recipe", recipes=False) == [6, 6, 6]


def test_steps_are_equal(task):
    assert lengths(task, "steps") == [6, 6, 6]


def test_compute_is_that_of_the_most_expensive_method(task):
    # A batch ensemble divides the batch among its members, so that a step costs as much as one network's.
    assert lengths(task, "compute") == [18, 6, 18]


def test_compute_leaves_a_method_that_cannot_be_converted_alone(task):
    found = trainings(nn.Identity, task, [Single(), BatchEnsemble(members=2)], USUAL, "compute")
    assert [one.steps for one in found] == [6, 6]


def test_convergence_ends_by_patience(task):
    found = until_convergence(USUAL, len(task.train))
    assert (found.steps, found.schedule, found.patience) == (6 * LONGEST, "constant", 1)
    assert found.ema > 0
    kept = until_convergence(Training(steps=6, batch=20, patience=7, ema=0.5), 60)
    assert (kept.patience, kept.ema) == (7, 0.5)


def test_convergence_needs_validation_data():
    with pytest.raises(SettingError, match="needs validation data"):
        lengths(two_moons(train=60, validation=0), "convergence")


def test_an_unknown_word_is_refused(task):
    with pytest.raises(SettingError, match="train_for must be one of"):
        lengths(task, "hours")


def test_compare_records_what_was_held_equal(task, tmp_path):
    how = {"seeds": 1, "training": USUAL, "shifted": False, "show": False, "out": tmp_path}
    torch.manual_seed(0)
    records = compare(build, task, METHODS[:2], train_for="compute", **how)
    assert [one.cost["train_multiply_adds_ratio"] for one in records] == pytest.approx([3, 3], rel=0.01)
    assert [one.training["train_for"] for one in records] == ["compute", "compute"]
    assert "held equal: compute" in group_records(records)[0].training
    (ended,) = compare(build, task, METHODS[:1], train_for="convergence", **how)
    assert not ended.error
    assert 0 < ended.history["step"][-1] <= 6 * LONGEST
