"""Steps of an epoch: the batches of each, in the orders that a method goes through."""

import pytest
import torch
from torch.testing import assert_close

import pluribus as pl
from pluribus.data import two_moons
from pluribus.training import Training
from pluribus.training.one_cpu import OneCPU
from pluribus.training.stepping import finite_mean, step_batches


@pytest.fixture(scope="module")
def task():
    return two_moons(train=120)


def steps_of(task, orders: int) -> list:
    return [batch for parts in step_batches(task, Training(batch=32), 0, OneCPU(), orders) for batch in parts]


def test_a_step_accumulates_its_batches(task):
    steps = list(step_batches(task, Training(batch=25, accumulate=2), 0, OneCPU(), 1))
    assert [[len(batch) for batch in parts] for parts in steps] == [[25, 25], [25, 25], [20]]


def test_losses_that_are_not_finite_raise():
    with pytest.raises(pl.PluribusError, match="got nan in epoch 3"):
        finite_mean([torch.tensor(1.0), torch.tensor(float("nan"))], 3)


def test_members_may_go_through_the_samples_in_orders_of_their_own(task):
    together = steps_of(task, orders=1)
    apart = steps_of(task, orders=2)
    assert len(together) == len(apart)
    first, second = (torch.cat([batch.x.chunk(2)[stream] for batch in apart]) for stream in range(2))
    assert_close(first, torch.cat([batch.x for batch in together]), rtol=0, atol=0)
    assert not torch.equal(first, second)
    assert_close(second.sort(0).values, first.sort(0).values, rtol=0, atol=0)
