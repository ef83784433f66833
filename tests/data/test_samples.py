"""Samples of NumPy, pandas and PyTorch's datasets as tensors."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from pluribus.data import Split
from pluribus.data.samples import to_inputs, to_targets
from pluribus.errors import InputError

X, Y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 2, 1])


class Pairs(Dataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, place):
        return self.samples[place]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y.tolist(), strict=True))


def same(split):
    assert (split.x.dtype, split.y.dtype) == (torch.float32, torch.int64)
    assert_close(split.x, torch.from_numpy(X).float(), rtol=0, atol=0)
    assert_close(split.y, torch.from_numpy(Y), rtol=0, atol=0)


def test_split_takes_numpy():
    same(Split(X, Y))
    same(Split(X.astype(">f4"), Y.astype(np.int32)))


def test_split_takes_datasets():
    same(Split(Pairs(list(zip(X, Y, strict=True)))).in_memory())
    same(Split(Pairs(list(zip(torch.from_numpy(X).float(), Y.tolist(), strict=True)))).in_memory())
    same(Split(TensorDataset(torch.from_numpy(X).float(), torch.from_numpy(Y))))
    same(Split(Stream(), length=4).in_memory())


def test_split_takes_frames():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    same(Split(frame, pandas.Series(Y)))
    with pytest.raises(InputError, match=r"x must hold numbers .* Use pluribus.data.frame_task for tables"):
        Split(frame.assign(d="word"), Y)


def test_types_of_inputs_and_targets():
    assert to_inputs(np.zeros((2, 3), np.uint8)).dtype == torch.uint8
    assert to_inputs(np.zeros((2, 3), np.int16)).dtype == torch.int64
    assert to_inputs(np.zeros((2, 3), bool)).dtype == torch.float32
    assert to_inputs(torch.zeros(2, 3).double()).dtype == torch.float64
    assert to_targets([0.5, 1.5]).shape == (2, 1)
    assert to_targets(np.zeros((2, 4, 4))).shape == (2, 4, 4)
    assert to_targets([True, False]).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "at least one sample"),
        ([{"x": 1}], "samples must have a target"),
        ([(X[0], 0), (X[0, :2], 0)], "samples of a batch must have one shape and type"),
        ([(X[0], "cat")], "targets of a batch must be a tensor, got tuple"),
    ],
)
def test_samples_that_do_not_fit_are_refused(samples, message):
    with pytest.raises(InputError, match=message):
        list(Split(Pairs(samples)).in_memory().batches(2))


def test_inputs_without_targets_are_refused():
    with pytest.raises(InputError, match="inputs and targets, or of a Dataset, got ndarray alone"):
        Split(X)


def test_memory_of_a_dataset_is_limited():
    with pytest.raises(InputError, match="samples of a dataset must take at most 50 bytes"):
        Split(Pairs(list(zip(X, Y, strict=True)))).in_memory(most_bytes=50)


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(4, 3).to_sparse(),
        torch.zeros(4, 3, device="meta"),
        torch.nested.nested_tensor([torch.zeros(3)] * 4, layout=torch.jagged),
    ],
    ids=["sparse", "meta", "nested"],
)
def test_tensors_that_cannot_be_cut_into_samples_are_refused(x):
    with pytest.raises(InputError, match="x must be a dense tensor that holds numbers, got a "):
        Split(x, Y)
    with pytest.raises(InputError, match="y must be a dense tensor"):
        to_targets(x)


def test_masked_entries_are_refused_and_masks_of_nothing_are_not():
    hidden = np.ma.masked_array(X, mask=X > 5)
    with pytest.raises(InputError, match="x must have no masked entries"):
        Split(hidden, Y)
    with pytest.raises(InputError, match="y must have no masked entries"):
        Split(X, np.ma.masked_array(Y, mask=Y == 2))
    assert_close(Split(np.ma.masked_array(X, mask=False), Y).x, Split(X, Y).x)
