"""Toys: where the points lie, what the papers state, seeds."""

import math

import pytest
import torch
from sklearn.datasets import make_moons
from torch.testing import assert_close

from pluribus.data.splits import seeded
from pluribus.data.toy import sign_function, sign_network, two_moons, two_sinusoids
from pluribus.errors import SettingError

TOYS = [two_moons, two_sinusoids, sign_network]


def raw(task, split):
    return task.scaling.invert(split.x.double())


@pytest.mark.parametrize("toy", TOYS)
def test_counts_are_as_asked_for(toy):
    task = toy(train=30, validation=0, test=40)
    assert (len(task.train), len(task.validation), len(task.test)) == (30, 0, 40)
    assert [len(x) for x in task.ood.values()] == [40]
    assert not task.shifted
    assert len(toy().train) == 500


@pytest.mark.parametrize("toy", TOYS)
def test_the_seed_rules_everything(toy):
    first, same, other = toy(seed=3), toy(seed=3), toy(seed=4)
    for part in ("train", "validation", "test"):
        assert_close(getattr(first, part).x, getattr(same, part).x, rtol=0, atol=0)
        assert not torch.equal(getattr(first, part).x, getattr(other, part).x)
    assert_close(first.ood["elsewhere"], same.ood["elsewhere"], rtol=0, atol=0)
    assert not torch.equal(first.train.x[:100], first.validation.x)


@pytest.mark.parametrize("toy", TOYS)
def test_impossible_settings_are_refused(toy):
    with pytest.raises(SettingError, match="noise must be at least 0, got -1"):
        toy(noise=-1)
    with pytest.raises(SettingError, match="train must be at least 1, got 0"):
        toy(train=0)
    with pytest.raises(SettingError, match=r"train must be .* 10000000, got 410000000000"):
        toy(train=410_000_000_000)
    with pytest.raises(SettingError, match="Did you mean 'validation'"):
        toy(validaton=5)


def test_moons_are_those_of_scikit_learn():
    task = two_moons(noise=0)
    points, labels = make_moons(4000, noise=None)
    for one in (0, 1):
        mine, curve = raw(task, task.test)[task.test.y == one], torch.from_numpy(points[labels == one])
        assert torch.cdist(mine, curve).amin(1).max() < 2e-3
        assert torch.cdist(curve, mine).amin(1).max() < 0.1


def test_noise_has_the_given_deviation():
    quiet, loud = two_sinusoids(noise=0, test=20_000), two_sinusoids(noise=0.3, test=20_000)
    for task, std in ((quiet, 0.0), (loud, 0.3)):
        x, height = raw(task, task.test).unbind(1)
        error = height - x.sin() - (2 * task.test.y - 1)
        assert error.std().item() == pytest.approx(std, rel=0.03, abs=1e-6)
        assert -5 <= x.min() < -4.99
        assert 4.99 < x.max() <= 5 + 1e-6


def test_out_of_distribution_points_lie_elsewhere():
    moons, waves, signs = two_moons(), two_sinusoids(), sign_network()
    ring = moons.scaling.invert(moons.ood["elsewhere"].double()) - torch.tensor([0.5, 0.25])
    assert ring.norm(dim=1).min() > 2.99
    assert (raw(moons, moons.test) - torch.tensor([0.5, 0.25])).norm(dim=1).max() < 2.2
    for task, edge in ((waves, 5), (signs, 10)):
        x = task.scaling.invert(task.ood["elsewhere"].double())[:, 0]
        assert edge - 1e-5 < x.abs().min() < x.abs().max() < 2 * edge + 1e-5
        assert x.sign().mean() == 0


def test_sign_functions_have_the_variance_of_the_equation():
    x = torch.tensor([0.0, 7.0], dtype=torch.float64)
    values = torch.stack([sign_function(x, seeded(i)) for i in range(4000)])
    assert_close(values.var(0), torch.full((2,), 20 + 100 * 5.0).double(), rtol=0.1, atol=0)
    # The sign of b + w x turns between 0 and 7 with the angle between (1, 0) and (1, 7), in units of the std.
    angle = math.atan(7 * math.sqrt(5 / 20))
    expected = (20 + 500 * (1 - 2 * angle / math.pi)) / 520
    assert torch.corrcoef(values.T)[0, 1].item() == pytest.approx(expected, abs=0.04)


def test_a_sign_network_is_one_function():
    task = sign_network(noise=0)
    for split in (task.train, task.test):
        x, y = raw(task, split)[:, 0], task.target_scaling.invert(split.y.double())[:, 0]
        assert_close(y, sign_function(x, seeded(0, "sign_function")), rtol=0, atol=1e-4)
    assert_close(task.train.y.std(correction=0), torch.tensor(1.0))
