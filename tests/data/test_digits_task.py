"""Digits: counts, balance, leakage, scaling, shifts, photographs, seeds."""

import sys

import pytest
import torch
from torch.testing import assert_close

from pluribus.data.digits_task import digits
from pluribus.errors import InputError, SettingError


def rows(split):
    return {tuple(row) for row in split.x.flatten(1).tolist()}


def test_counts_and_balance():
    task = digits(train=300)
    assert (len(task.train), len(task.validation), len(task.test)) == (300, 120, 600)
    assert torch.bincount(task.train.y).tolist() == [30, 30, 30, 31, 30, 30, 30, 30, 29, 30]
    for split in (task.validation, task.test):
        counts = torch.bincount(split.y) / len(split)
        assert_close(counts, torch.full((10,), 0.1), rtol=0, atol=0.01)
    assert (task.input_shape, task.outputs, task.name) == ((1, 8, 8), 10, "digits")


def test_no_digit_is_in_two_parts():
    task = digits()
    parts = [rows(split) for split in (task.train, task.validation, task.test)]
    assert len(set.union(*parts)) == sum(map(len, parts)) == 1797


def test_training_digits_have_mean_0_and_variance_1():
    task = digits(train=300)
    assert_close(task.train.x.mean(), torch.tensor(0.0), rtol=0, atol=1e-6)
    assert_close(task.train.x.std(correction=0), torch.tensor(1.0), rtol=0, atol=1e-6)


def test_every_shift_is_finite_and_keeps_the_labels():
    task = digits(train=100, test=20)
    assert len(task.shifted) == 95
    for split in task.shifted.values():
        assert split.x.shape == (20, 1, 8, 8)
        assert split.x.isfinite().all()
        assert_close(split.y, task.test.y, rtol=0, atol=0)


def test_shifts_share_the_scale_of_the_test_digits():
    task = digits()
    raw = task.scaling.invert(task.test.x)
    assert -1e-6 < raw.min() < raw.max() < 1 + 1e-6
    shifted = task.scaling.invert(task.shifted["impulse_noise", 5].x)
    assert -1e-6 < shifted.min() < shifted.max() < 1 + 1e-6
    assert len(shifted) == 200
    assert 0 < (shifted - raw[:200]).abs().gt(1e-6).float().mean() < 0.5


def test_photographs_are_out_of_distribution():
    pytest.importorskip("PIL")
    task = digits()
    assert list(task.ood) == ["photographs"]
    assert not task.missing
    patches = task.scaling.invert(task.ood["photographs"])
    assert patches.shape == (600, 1, 8, 8)
    assert -1e-6 < patches.min() < patches.max() < 1 + 1e-6
    assert patches.std((1, 2, 3)).mean() < 0.2 < task.scaling.invert(task.test.x).std((1, 2, 3)).mean()


def test_without_pillow_the_photographs_are_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    task = digits()
    assert not task.ood
    assert task.missing["photographs"].endswith("Run `pip install pillow`.")


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match=r"needs scikit-learn, which is not installed. Run `pip install"):
        digits()


def test_same_arguments_give_the_same_task():
    first, same, other = digits(train=300), digits(train=300), digits(train=300, seed=1)
    for part in ("train", "validation", "test"):
        for name in ("x", "y"):
            a, b, c = (getattr(getattr(task, part), name) for task in (first, same, other))
            assert_close(a, b, rtol=0, atol=0)
            assert not torch.equal(a, c)
    assert_close(first.shifted["frost", 4].x, same.shifted["frost", 4].x, rtol=0, atol=0)
    for name in first.ood:
        assert_close(first.ood[name], same.ood[name], rtol=0, atol=0)


def test_too_many_digits_are_refused():
    with pytest.raises(SettingError, match="train must be a whole number from 10 to 1077, got 5000"):
        digits(train=5000)
