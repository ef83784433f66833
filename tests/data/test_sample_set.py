"""SampleSet: every kind of samples gives the same batches."""

import pytest
import torch
from torch.utils.data import DataLoader

from pluribus.data.batch import Names
from pluribus.data.in_memory import InMemory
from pluribus.data.indexed import Indexed
from pluribus.data.own_order import iterable_set, loader_set

X, Y = torch.arange(14.0).reshape(7, 2), torch.arange(7) % 3
PAIRS = list(zip(X, Y, strict=True))


class Stream:
    def __iter__(self):
        return iter(PAIRS)


SETS = {
    "in_memory": lambda: InMemory(X, Y),
    "indexed": lambda: Indexed(PAIRS, Names()),
    "iterable": lambda: iterable_set(Stream(), Names(), 7, None, None, 0, False),
    "loader": lambda: loader_set(DataLoader(PAIRS, batch_size=3), Names(), None),
}


@pytest.mark.parametrize("kind", SETS)
def test_read_and_first_give_the_samples_in_order(kind):
    samples = SETS[kind]()
    assert len(samples) == 7
    for _ in range(2):
        batches = list(samples.read(3))
        assert [len(batch) for batch in batches] == [3, 3, 1]
        assert torch.equal(torch.cat([batch.x for batch in batches]), X)
        assert torch.equal(torch.cat([batch.target for batch in batches]), Y)
    assert torch.equal(samples.first(4).x, X[:4])


@pytest.mark.parametrize("kind", SETS)
def test_reading_leaves_the_random_state_of_torch(kind):
    before = torch.get_rng_state()
    samples = SETS[kind]()
    samples.first(2)
    list(samples.read(3, [torch.Generator().manual_seed(1)]))
    if kind != "loader":
        assert torch.equal(torch.get_rng_state(), before)
