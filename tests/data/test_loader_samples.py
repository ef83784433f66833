"""Loaders: torch's own samplers give way to a seed, those of a user keep their order."""

import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, WeightedRandomSampler

from pluribus.data import Split
from pluribus.data.indexed import Indexed
from pluribus.data.own_order import OwnOrder

A, Y = torch.arange(14.0).reshape(7, 2), torch.arange(7) % 3
PAIRS = list(zip(A, Y, strict=True))


def test_a_loader_without_a_sampler_of_the_user_is_shuffled_by_the_seed():
    loader = DataLoader(PAIRS, batch_size=3, shuffle=True)
    split = Split(loader)
    assert isinstance(split.samples, Indexed)
    assert split.samples.batch_size == 3
    drawn = [torch.cat([b.x for b in split.read(3, [torch.Generator().manual_seed(1)])]) for _ in range(2)]
    assert torch.equal(*drawn)


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": WeightedRandomSampler([1.0] * 7, 7)},
        {"sampler": RandomSampler(PAIRS, replacement=True)},
        {"batch_sampler": [[0, 1], [2, 3, 4, 5, 6]]},
    ],
    ids=["weighted", "replacement", "batches"],
)
def test_a_sampler_of_the_user_keeps_its_order(options):
    assert isinstance(Split(DataLoader(PAIRS, **options)).samples, OwnOrder)
