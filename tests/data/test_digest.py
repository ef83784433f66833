"""Digests: equal data has equal ones, and every difference shows."""

import itertools

import torch
from torch.utils.data import DataLoader

from pluribus.data import Split, Task, digits, two_moons
from pluribus.data.digest import digest

X, Y = torch.arange(40.0).reshape(20, 2), torch.arange(20) % 2


def variants():
    changed = X.clone()
    changed[13, 1] += 1e-3
    yield Split(X, Y)
    yield Split(changed, Y)
    yield Split(X, 1 - Y)
    yield Split(X.double(), Y)
    yield Split(X, Y, weights=torch.ones(20))
    yield Split({"a": X}, Y)
    yield Split({"b": X}, Y)
    yield Split(list(zip(X, Y, strict=True)))
    yield Split(list(zip(changed, Y, strict=True)))
    yield Split(DataLoader(list(zip(X, Y, strict=True)), batch_sampler=[[0]]))


def test_digests_tell_data_apart():
    first, again = [digest(one) for one in variants()], [digest(one) for one in variants()]
    assert first == again
    for one, other in itertools.combinations(first, 2):
        assert one != other


def test_digests_tell_settings_apart():
    values = [None, 1, 1.0, "1", True, [1], [1, 1], [[1], 1], {"a": 1}, {"b": 1}, torch.ones(1)]
    for one, other in itertools.combinations(values, 2):
        assert digest(one) != digest(other)


def test_random_samples_have_one_digest():
    def noisy():
        return Split(X, Y, transform=lambda sample: (sample[0] + torch.randn(2), sample[1]))

    assert digest(noisy()) == digest(noisy())


def test_tasks_of_one_description_have_fingerprints_of_their_own():
    one, other = two_moons(train=50), two_moons(train=50, seed=1)
    assert repr(one) == repr(other)
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == two_moons(train=50).fingerprint
    parts = (one.train, one.validation, one.test)
    weighted = Task("two_moons", *parts, classes=2, class_weights=(1.0, 2.0))
    assert weighted.fingerprint != Task("two_moons", *parts, classes=2).fingerprint


def test_corrupted_images_are_not_made_for_a_fingerprint(monkeypatch):
    from pluribus.data import shifted

    task = digits(train=50)
    monkeypatch.setattr(shifted, "corrupt", None)
    assert len(task.fingerprint) == 16
