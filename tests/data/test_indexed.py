"""Datasets read by number: seeded order, seeded augmentation, weights, workers, clear errors."""

import random

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pluribus.data.batch import Names
from pluribus.data.in_memory import InMemory
from pluribus.data.indexed import Indexed, restored_random, stack_samples
from pluribus.errors import InputError

X, Y = torch.arange(46.0).reshape(23, 2), torch.arange(23) % 3
PAIRS = list(zip(X, Y, strict=True))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def jitter(sample):
    """Draw from all three sources of random numbers."""
    noise = torch.randn(2) + float(np.random.rand()) + random.random()
    return sample[0] + noise, sample[1]


def inputs(samples, seed=0, size=5):
    return torch.cat([batch.x for batch in samples.read(size, [generator(seed)])])


def test_order_is_that_of_tensors_in_memory():
    streamed = Indexed(PAIRS, Names())
    for seeds in ((3,), (3, 4)):
        pairs = zip(
            streamed.read(5, [generator(one) for one in seeds]),
            InMemory(X, Y).read(5, [generator(one) for one in seeds]),
            strict=True,
        )
        for one, other in pairs:
            assert_close(one.x, other.x, rtol=0, atol=0)
            assert_close(one.target, other.target, rtol=0, atol=0)


def test_augmentation_follows_from_the_seed_and_the_sample():
    samples = Indexed(PAIRS, Names(), transform=jitter)
    first, again, other = inputs(samples, 1), inputs(samples, 1), inputs(samples, 2)
    assert_close(first, again, rtol=0, atol=0)
    # Batches of another size hold the same samples.
    assert_close(first, inputs(samples, 1, size=8), rtol=0, atol=0)
    assert not torch.equal(first, other)


def test_workers_change_nothing():
    here = inputs(Indexed(PAIRS, Names(), transform=jitter), 1)
    there = inputs(Indexed(PAIRS, Names(), transform=jitter, workers=2), 1)
    assert_close(here, there, rtol=0, atol=0)


def test_weights_go_with_their_samples():
    samples = Indexed(PAIRS, Names(), weights=X[:, 0])
    for batch in samples.read(4, [generator(2)]):
        assert_close(batch.weights, batch.x[:, 0])
    some = samples.take(torch.tensor([5, 2])).take(torch.tensor([1]))
    assert [batch.weights.tolist() for batch in some.read(4)] == [[4.0]]
    with pytest.raises(InputError, match="one number for each of 23 samples"):
        Indexed(PAIRS, Names(), weights=torch.ones(3))


def test_batches_of_a_dataset_are_read_in_one_call():
    class Whole(list):
        def __getitems__(self, places):
            assert len(places) > 1
            return [self[place] for place in places]

    assert_close(inputs(Indexed(Whole(PAIRS), Names())), inputs(Indexed(PAIRS, Names())), rtol=0, atol=0)


def test_stack_samples_gives_the_usual_types():
    x, y = stack_samples([(np.zeros(2), 1), (np.ones(2), 0)])
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert stack_samples([{"x": np.float64(1), "id": "a"}])["x"].dtype == torch.float32


def test_samples_of_several_shapes_are_refused_with_a_remedy():
    samples = Indexed([(torch.zeros(2), 0), (torch.zeros(3), 1)], Names())
    expected = r"one shape and type, got \(\[2\], \[\]\) and \(\[3\], \[\]\).*Split\(\.\.\., collate="
    with pytest.raises(InputError, match=expected):
        list(samples.read(2))
    with pytest.raises(InputError, match=expected):
        list(Indexed(samples.dataset, Names(), workers=1).read(2))


def test_restored_random_restores_all_states():
    def draw():
        return torch.rand(1).item(), np.random.rand(), random.random()

    with restored_random():
        first = draw()
    assert draw() == first


def test_last_small_batch_is_dropped_in_training_alone():
    samples = Indexed(PAIRS, Names(), drop_last=True)
    assert sum(len(batch) for batch in samples.read(5, [generator()])) == 20
    assert sum(len(batch) for batch in samples.read(5)) == 23
