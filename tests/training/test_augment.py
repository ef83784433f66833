"""Augmentation: seeded batches, mixed targets, and tasks that it refuses."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from pluribus.data import two_moons
from pluribus.data.task import Split
from pluribus.errors import SettingError
from pluribus.likelihood import Categorical
from pluribus.training import Augment, Training
from pluribus.training.augment import (
    CHANGES,
    change_images,
    check_augment,
    cut_and_paste,
    generator_of,
    mix_samples,
)
from pluribus.training.one_cpu import OneCPU
from pluribus.training.stepping import step_batches
from tests.cases import seeded

X = torch.rand(8, 1, 6, 6, generator=seeded(0))
EVERYTHING = Augment(flip=True, crop=2, operations=2, strength=9.0, mixup=0.5, cutmix=0.2)


def image_task():
    split = Split(X, torch.arange(8) % 2)
    return replace(two_moons(train=8), train=split, validation=split, test=split, shifted={}, ood={})


@pytest.mark.parametrize("augment", [Augment(flip=True), Augment(crop=2), Augment(operations=3)], ids=str)
def test_changes_follow_from_the_generator_and_change_something(augment):
    first, again, other = (change_images(X, augment, seeded(seed)) for seed in (0, 0, 1))
    assert_close(again, first, rtol=0, atol=0)
    assert first.shape == X.shape
    assert not torch.equal(first, X)
    assert not torch.equal(first, other)


def test_randaugment_draws_every_change_and_no_other():
    one = torch.rand(1, 3, 24, 24, generator=seeded(1))
    drawn = change_images(one.repeat(400, 1, 1, 1), Augment(operations=1, strength=5.0), seeded(0))
    assert len(CHANGES) == 14
    found = []
    for name, change in CHANGES.items():
        both = [change(one, torch.tensor([by])) for by in (0.5, -0.5)]
        matches = torch.stack([(drawn - known).abs().amax((1, 2, 3)) < 1e-5 for known in both]).any(0)
        # About a fourteenth of them, 29: fewer than 10 or more than 50 is chance in less than one of 1000.
        assert 10 < matches.sum() < 50, name
        found.append(matches)
    assert torch.stack(found).any(0).all()


def test_strengths_of_randaugment_spread_within_their_range():
    one = torch.rand(1, 1, 24, 24, generator=seeded(1)).repeat(300, 1, 1, 1)
    same = change_images(one, Augment(operations=1, strength=5.0), seeded(0))
    spread = change_images(one, Augment(operations=1, strength=5.0, spread=2.0), seeded(0))
    # Each change goes in one of two directions, and some have none: few images where all strengths are 5.
    assert len(same.unique(dim=0)) < 2 * len(CHANGES)
    assert len(spread.unique(dim=0)) > 100


def test_changes_of_randaugment_go_either_way(monkeypatch):
    seen = []
    monkeypatch.setitem(CHANGES, "identity", lambda x, by: seen.append(by) or x)
    for name in [name for name in CHANGES if name != "identity"]:
        monkeypatch.delitem(CHANGES, name)
    change_images(torch.rand(200, 1, 4, 4), Augment(operations=1, strength=5.0), seeded(0))
    up = int((torch.cat(seen) == 0.5).sum())
    assert 70 < up < 130
    assert up + int((torch.cat(seen) == -0.5).sum()) == 200


@pytest.mark.parametrize(
    "augment", [Augment(flip=True, mixup=0.2), Augment(operations=2), Augment(spread=1.0)]
)
def test_settings_come_back(augment):
    assert Augment.from_dict(augment.to_dict()) == augment


def test_settings_without_randaugment_are_written_as_by_version_1():
    changes = {"flip": True, "crop": 2, "operations": 0, "strength": 9.0, "mixup": 0.0, "cutmix": 0.2}
    written = {"kind": "augment", "version": 1, **changes, "each": True}
    assert Augment(flip=True, crop=2, cutmix=0.2).to_dict() == written
    assert Augment(operations=2).to_dict()["version"] == 2


def test_random_numbers_of_orders_are_shared_or_apart():
    for each in (True, False):
        augment = Augment(flip=True, each=each)
        one, other = (torch.rand(3, generator=generator_of(5, 2, order, augment)) for order in (0, 1))
        assert torch.equal(one, other) is not each
    later = generator_of(5, 3, 0, Augment())
    assert not torch.equal(
        torch.rand(3, generator=later), torch.rand(3, generator=generator_of(5, 2, 0, None))
    )


def test_mixup_mixes_images_and_targets_alike():
    y = torch.eye(8)
    x, target = mix_samples(X, y, Augment(mixup=1.0), seeded(0))
    assert_close(target.sum(1), torch.ones(8))
    # Targets are unit vectors, so that they tell which images were mixed.
    assert_close(x, torch.einsum("bs,schw->bchw", target, X))


def test_cutmix_shares_are_those_of_the_area():
    x, share = cut_and_paste(torch.zeros(2, 1, 8, 8), torch.tensor([1, 0]), 0.5, seeded(3))
    assert not x.any()
    both = torch.cat([torch.zeros(1, 1, 8, 8), torch.ones(1, 1, 8, 8)])
    x, share = cut_and_paste(both, torch.tensor([1, 0]), 0.5, seeded(3))
    assert x[0].mean() == pytest.approx(1 - share)
    assert x[1].mean() == pytest.approx(share)


def test_mixing_leaves_the_global_random_numbers_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    mix_samples(X, torch.eye(8), EVERYTHING, seeded(0))
    assert_close(torch.rand(3), expected, rtol=0, atol=0)


def test_batches_of_an_epoch_are_augmented_with_their_targets():
    training = Training(batch=4, augment=EVERYTHING, label_smoothing=0.1)
    (first, *_), *_ = step_batches(image_task(), training, 3, OneCPU(), 1)
    (again, *_), *_ = step_batches(image_task(), training, 3, OneCPU(), 1)
    (later, *_), *_ = step_batches(image_task(), training, 4, OneCPU(), 1)
    assert torch.equal(again.x, first.x)
    assert torch.equal(again.target, first.target)
    assert not torch.equal(first.x, later.x)
    assert first.target.shape == (4, 2)
    assert_close(first.target.sum(1), torch.ones(4))


def test_inputs_that_are_no_images_and_ignored_positions_are_refused():
    with pytest.raises(SettingError, match="augment needs images as floats"):
        check_augment(two_moons(train=8), Augment(flip=True))
    task = image_task()
    object.__setattr__(task.train.samples, "y", torch.tensor([-100] * 8))
    assert isinstance(task.likelihood, Categorical)
    with pytest.raises(SettingError, match="mixup and cutmix need a class"):
        check_augment(task, Augment(mixup=0.2))
    check_augment(task, None)


def test_settings_go_to_files_and_back():
    training = Training(augment=EVERYTHING)
    assert Training.from_dict(training.to_dict()) == training
    assert "augment" not in Training().to_dict()
    with pytest.raises(SettingError, match="augment must be an Augment or None"):
        Training(augment="flip")
