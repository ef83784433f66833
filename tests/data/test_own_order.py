"""Sets with an order of their own: it is kept, moved by set_epoch, and caught up with after a pause."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler, WeightedRandomSampler

from pluribus.data.batch import Names
from pluribus.data.own_order import iterable_set, loader_set
from pluribus.errors import InputError

PAIRS = [(torch.tensor([float(i)]), i % 2) for i in range(6)]
ORDER = [torch.Generator().manual_seed(0)]


class Rotated(Sampler):
    """An order that depends on the epoch alone."""

    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 6

    def __iter__(self):
        return iter([(place + self.epoch) % 6 for place in range(6)])


class Drawn(Sampler):
    """An order that depends on all passes before."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(5)

    def __len__(self):
        return 6

    def __iter__(self):
        return iter(torch.randperm(6, generator=self.generator).tolist())


class Stream(IterableDataset):
    def __iter__(self):
        return iter(PAIRS)


def order(samples, epoch):
    return torch.cat([batch.x for batch in samples.read(2, ORDER, epoch)]).flatten().long().tolist()


def of_sampler(sampler):
    return loader_set(DataLoader(PAIRS, batch_size=2, sampler=sampler), Names(), None)


def test_set_epoch_is_called():
    samples = of_sampler(Rotated())
    assert order(samples, 4) == [4, 5, 0, 1, 2, 3]
    assert order(samples, 1) == [1, 2, 3, 4, 5, 0]


def test_a_resumed_pass_is_that_of_the_epoch():
    whole = of_sampler(Drawn())
    expected = [order(whole, epoch) for epoch in range(3)]
    assert order(of_sampler(Drawn()), 2) == expected[2]
    assert len({tuple(one) for one in expected}) == 3


def test_looking_at_samples_does_not_move_the_order():
    plain, looked = of_sampler(Drawn()), of_sampler(Drawn())
    assert looked.first(3).x.flatten().tolist() == [0, 1, 2]
    assert order(looked, 0) == order(plain, 0)


def test_several_orders_are_refused_by_name():
    samples = of_sampler(WeightedRandomSampler([1.0] * 6, 6))
    with pytest.raises(InputError, match="order of its own, got WeightedRandomSampler"):
        next(samples.read(2, ORDER * 2))


def test_sizes_of_batches_follow_from_the_loader():
    batches = [[0, 1, 2, 3], [4, 5]]
    samples = loader_set(DataLoader(PAIRS, batch_sampler=batches), Names(), None)
    assert (len(samples), samples.batch_size) == (6, 3)
    assert [len(batch) for batch in samples.read(64)] == [4, 2]
    assert of_sampler(Drawn()).batch_size == 2


def test_an_iterable_needs_a_length_and_another_pass():
    with pytest.raises(InputError, match=r"got Stream without a length. Give Split\(\.\.\., length="):
        iterable_set(Stream(), Names(), None, None, None, 0, False)
    with pytest.raises(InputError, match="gives its samples once"):
        iterable_set(iter(PAIRS), Names(), 6, None, None, 0, False)
    found = iterable_set(Stream(), Names(), 6, lambda sample: (sample[0] + 1, sample[1]), None, 0, False)
    assert order(found, 0) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(InputError, match="samples must have numbers"):
        found.take(torch.tensor([0]))
