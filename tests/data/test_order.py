"""The order of samples follows from seeds alone."""

import torch

from pluribus.data.order import index_batches


def seeded(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def test_index_batches_cover_all_samples_once():
    assert [part.tolist() for part in index_batches(5, 2)] == [[0, 1], [2, 3], [4]]
    drawn = torch.cat(list(index_batches(50, 8, seeded(3))))
    assert sorted(drawn.tolist()) == list(range(50))
    assert torch.equal(drawn, torch.randperm(50, generator=torch.Generator().manual_seed(3)))


def test_several_orders_lie_one_after_the_other():
    both = list(index_batches(10, 4, seeded(1, 2)))
    first, second = list(index_batches(10, 4, seeded(1))), list(index_batches(10, 4, seeded(2)))
    for together, one, other in zip(both, first, second, strict=True):
        assert torch.equal(together, torch.cat((one, other)))


def test_processes_share_every_batch():
    whole = list(index_batches(10, 4, seeded(1)))
    shares = [list(index_batches(10, 4, seeded(1), slice(rank, None, 2))) for rank in range(2)]
    for batch, one, other in zip(whole, *shares, strict=True):
        assert sorted(batch.tolist()) == sorted([*one.tolist(), *other.tolist()])
