"""Inputs of all parts of a task are of one kind."""

import pytest
import torch

from pluribus.data import Split, Task
from pluribus.errors import InputError

X, Y = torch.randn(8, 2), torch.arange(8) % 2


def task(train, test):
    return Task("mine", train, train.take(torch.arange(0)), test, classes=2)


def test_parts_have_inputs_of_the_same_names():
    both = Split({"a": X, "b": X}, Y)
    assert task(both, Split({"b": X[:4], "a": X[:4]}, Y[:4])).input_shape == (2,)
    with pytest.raises(InputError, match="test inputs must be a, b as in training, got a"):
        task(both, Split({"a": X}, Y))


@pytest.mark.parametrize("streamed", [False, True])
def test_inputs_must_be_finite(streamed):
    bad = X.clone()
    bad[1, 0] = torch.nan
    split = (
        Split([{"a": x, "label": y} for x, y in zip(bad, Y, strict=True)])
        if streamed
        else Split({"a": bad}, Y)
    )
    with pytest.raises(InputError, match="train inputs must be finite, but 1 of 16"):
        task(split, split)
