"""From raw samples to a task: constants of the training part alone, checks before anything is divided."""

import pytest
import torch
from torch.testing import assert_close

from pluribus.data import Split
from pluribus.data.assembly import assemble
from pluribus.data.scaling import Scaling
from pluribus.errors import InputError
from pluribus.likelihood import Bernoulli, Categorical, Gaussian


def uniform(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_constants_are_those_of_the_training_part():
    train, other = Split(uniform(30, 2), uniform(30, 1)), Split(uniform(9, 2) + 5, uniform(9, 1) + 5)
    task = assemble("a", (train, other, other), {}, likelihood=Gaussian())
    assert_close(task.scaling.mean, train.x.mean(0))
    assert_close(task.target_std, train.y.std(0, correction=0))
    assert_close(task.test.x, ((other.x - train.x.mean(0)) / train.x.std(0, correction=0)).float())
    assert_close(task.prepare(other.x), task.test.x, rtol=0, atol=0)
    some = assemble("a", (train, other, other), {"train": 5}, likelihood=Gaussian())
    assert_close(some.train.x.mean(0), torch.zeros(2), rtol=0, atol=1e-6)


def test_targets_are_scaled_where_they_are_numbers():
    split = Split(uniform(20, 2), uniform(20, 1))
    given = Scaling(torch.zeros(1), torch.full((1,), 4.0))
    task = assemble("a", (split, None, split), {}, likelihood=Gaussian(), target_scaling=given)
    assert_close(task.test.y, (split.y / 4).float())
    task = assemble("a", (split, None, split), {}, likelihood=Bernoulli(), target_scaling=given)
    assert_close(task.test.y, split.y.float())


@pytest.mark.parametrize(
    ("x", "shifts"),
    [
        (uniform(20, 3, 8, 8), 95),
        (uniform(20, 1, 8, 8), 95),
        (uniform(20, 2, 8, 8), 0),
        (uniform(20, 1, 7, 8), 0),
        (uniform(20, 1, 8, 8) + 1, 0),
        (uniform(20, 8, 8), 0),
    ],
)
def test_images_that_can_be_corrupted_have_shifts(x, shifts):
    split = Split(x, torch.arange(20) % 2)
    task = assemble("a", (split, None, None), {}, likelihood=Categorical(), classes=2)
    assert len(task.shifted) == shifts


def test_a_foreign_label_is_counted_in_the_data_as_given():
    y = torch.arange(40) % 2
    y[31] = 2
    split = Split(uniform(40, 2), y)
    with pytest.raises(InputError, match=r"train labels must lie in 0 to 1, got 2 at sample 31"):
        assemble("a", (split, None, None), {}, likelihood=Categorical(), classes=2)
