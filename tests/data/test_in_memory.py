"""Samples in memory, with one input or several."""

import pytest
import torch

from pluribus.data.batch import Batch
from pluribus.data.in_memory import InMemory, joined
from pluribus.errors import InputError
from pluribus.mechanisms.network.inputs import Inputs

A, B, Y = torch.arange(6.0).reshape(3, 2), torch.arange(3), torch.tensor([0, 1, 0])


@pytest.mark.parametrize("x", [A, (A, B), {"a": A, "b": B}], ids=["tensor", "tuple", "dict"])
def test_read_keeps_the_form_of_the_inputs(x):
    samples = InMemory(x, Y, torch.tensor([1.0, 2.0, 3.0]))
    batches = list(samples.read(2))
    assert [len(batch) for batch in batches] == [2, 1]
    assert type(batches[0].x) is type(x)
    assert torch.cat([batch.weights for batch in batches]).tolist() == [1, 2, 3]
    again = joined(batches)
    assert torch.equal(again.y, Y)
    assert len(samples.take(torch.tensor([2, 0]))) == 2


def test_rows_must_agree():
    with pytest.raises(InputError, match="x and y must have a row per sample, got 3 and 2 rows"):
        InMemory((A, B), Y[:2])
    with pytest.raises(InputError, match="weights must be one number for each of 3 samples"):
        InMemory(A, Y, torch.ones(2))


def test_joined_refuses_other_shapes():
    batches = [Batch(Inputs.of(A), Y), Batch(Inputs.of(A[:, :1]), Y)]
    with pytest.raises(InputError, match=r"inputs of a dataset must have one shape and type, got \[1\] of"):
        joined(batches)
