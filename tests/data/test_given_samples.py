"""Samples as users give them: weights and options are checked."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from pluribus.data import Split
from pluribus.errors import InputError

A, B, Y = torch.arange(14.0).reshape(7, 2), torch.arange(35.0).reshape(7, 5), torch.arange(7) % 3
PAIRS = list(zip(A, Y, strict=True))
DICTS = [{"a": a, "b": b, "label": int(y)} for a, b, y in zip(A, B, Y, strict=True)]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(DICTS)


def test_weights_are_checked():
    assert next(Split(A, Y, weights=[1, 2, 3, 4, 5, 6, 7]).read(2)).weights.tolist() == [1.0, 2.0]
    for weights in ([-1.0] * 7, [np.nan] * 7, [[1.0] * 7]):
        with pytest.raises(InputError, match="weights must be finite numbers of at least 0"):
            Split(A, Y, weights=weights)
    with pytest.raises(InputError, match=r"iterable dataset\. Put them into the samples"):
        Split(Stream(), length=7, weights=[1.0] * 7)
    with pytest.raises(InputError, match="loader with an order of its own"):
        Split(DataLoader(PAIRS, batch_sampler=[[0]]), weights=[1.0] * 7)


def test_options_beside_a_loader_are_refused():
    with pytest.raises(InputError, match="are those of the loader"):
        Split(DataLoader(PAIRS), workers=2)
    with pytest.raises(InputError, match="DataLoader or list, got int alone"):
        Split(3)
