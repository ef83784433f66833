"""Splits: proportions, disjointness, seeds, bounds."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from pluribus.data import Split
from pluribus.data.splits import divide, quotas, seeded, stratified
from pluribus.errors import InputError, SettingError


def numbered(count, classes=None):
    """Samples whose input is their number; a class in turn, or targets to predict."""
    x = torch.arange(count)[:, None]
    return Split(x, torch.arange(count) % classes if classes else x.double())


@given(st.lists(st.integers(1, 50), min_size=1, max_size=12), st.data())
def test_quotas_are_in_proportion(sizes, data):
    count = data.draw(st.integers(len(sizes), sum(sizes)))
    given_sizes = torch.tensor(sizes)
    found = quotas(given_sizes, count)
    assert found.sum() == count
    assert ((found >= 1) & (found <= given_sizes)).all()
    exact = given_sizes * count / sum(sizes)
    if (exact >= 1).all():
        assert ((found - exact).abs() < 1).all()


def test_a_rare_class_keeps_a_sample():
    assert quotas(torch.tensor([998, 1, 1]), 10).tolist() == [8, 1, 1]


def test_a_smaller_choice_is_part_of_a_larger_one():
    labels = torch.arange(1000) % 7
    small, large = (set(stratified(labels, n, seeded(0)).tolist()) for n in (70, 140))
    assert small < large


@pytest.mark.parametrize("classes", [None, 10])
def test_parts_are_disjoint_and_complete(classes):
    parts = divide((numbered(1000, classes), None, None), {})
    assert [len(part) for part in parts] == [720, 80, 200]
    numbers = torch.cat([part.x.flatten() for part in parts])
    assert_close(numbers.sort().values, torch.arange(1000), rtol=0, atol=0)


def test_classes_keep_their_proportions_in_every_part():
    y = torch.cat((torch.zeros(600), torch.ones(300), torch.full((100,), 2))).long()
    parts = divide((Split(torch.zeros(1000, 1), y), None, None), {"train": 100})
    assert [torch.bincount(part.y).tolist() for part in parts] == [[60, 30, 10], [48, 24, 8], [120, 60, 20]]


def test_a_class_with_one_sample_is_for_training():
    y = torch.tensor([0] * 50 + [1])
    train, validation, test = divide((Split(torch.zeros(51, 1), y), None, None), {})
    assert 1 in train.y
    assert 1 not in torch.cat((validation.y, test.y))


def test_published_parts_stay_apart():
    train, validation, test = divide((numbered(20, 2), numbered(10, 2), numbered(30, 2)), {})
    assert (len(train), len(validation), len(test)) == (20, 10, 30)
    train, validation, test = divide(
        (numbered(20, 2), numbered(10, 2), numbered(30, 2)), {"train": 8, "validation": 4, "test": 6}
    )
    assert [torch.bincount(part.y).tolist() for part in (train, validation, test)] == [[4, 4], [2, 2], [3, 3]]


def test_fewer_training_samples_change_no_other_part():
    whole = divide((numbered(500, 5), None, None), {})
    some = divide((numbered(500, 5), None, None), {"train": 50})
    assert_close(some[1].x, whole[1].x, rtol=0, atol=0)
    assert_close(some[2].x, whole[2].x, rtol=0, atol=0)
    assert set(some[0].x.flatten().tolist()) < set(whole[0].x.flatten().tolist())


@pytest.mark.parametrize("published", [None, numbered(10, 2)])
def test_validation_may_be_empty(published):
    train, validation, _ = divide((numbered(100, 2), published, None), {"validation": 0})
    assert (len(train), len(validation)) == (80, 0)


def test_the_seed_rules_the_choice():
    first, same, other = (divide((numbered(300, 3), None, None), {"seed": seed}) for seed in (1, 1, 2))
    for a, b, c in zip(first, same, other, strict=True):
        assert_close(a.x, b.x, rtol=0, atol=0)
        assert not torch.equal(a.x, c.x)


def test_the_global_generator_is_left_alone():
    state = torch.random.get_rng_state()
    divide((numbered(100, 2), None, None), {})
    assert_close(torch.random.get_rng_state(), state, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"train": 9}, "train must be a whole number from 10 to 720, got 9"),
        ({"train": 721}, "train must be a whole number from 10 to 720, got 721"),
        ({"test": 0}, "test must be a whole number from 1 to 990, got 0"),
        ({"test": 2.5}, "test must be a whole number from 1 to 990, got 2.5"),
        ({"validation": 900}, "validation must be a whole number from 0 to 790, got 900"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"trian": 5}, r"sizes are train, validation, test, seed, got 'trian'. Did you mean 'train'\?"),
    ],
)
def test_impossible_sizes_are_refused(sizes, message):
    with pytest.raises(SettingError, match=message):
        divide((numbered(1000, 10), None, None), sizes)


def test_too_few_samples_are_refused():
    with pytest.raises(InputError, match=r"got 8 samples of 8 classes. Add samples, or use"):
        divide((numbered(8, 8), None, None), {})
    with pytest.raises(InputError, match="got 1 samples of 1 classes"):
        divide((numbered(1), None, None), {})
