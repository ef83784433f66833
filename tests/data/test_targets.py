"""Targets of words and numbers."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pluribus.data.targets import classes_in, number_words, targets
from pluribus.likelihood import Categorical, Gaussian


def test_words_are_numbered_in_order():
    names, places = number_words(["b", "a", "b"])
    assert names == ("a", "b")
    assert_close(places, torch.tensor([1, 0, 1]))


def test_numbers_among_words_are_ordered_by_size():
    assert number_words(["10", "nan", "9", "x", "-1"])[0] == ("-1", "9", "10", "nan", "x")


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float64, bool])
def test_every_kind_of_number_is_a_class(dtype):
    found = targets("y", np.array([[1], [0]], dtype), Categorical())
    assert_close(found, torch.tensor([1, 0]), rtol=0, atol=0)


def test_other_targets_are_columns_of_float64():
    found = targets("y", np.array([3, 4], np.float32), Gaussian())
    assert_close(found, torch.tensor([[3.0], [4.0]], dtype=torch.float64), rtol=0, atol=0)


def test_numbers_that_may_be_classes_are_whole_from_0_without_gaps():
    def column(*values):
        return torch.tensor(values)[:, None]

    assert classes_in(column(1.0, 0.0, 1.00001)) == 2
    assert classes_in(column(2.0, 0.0, 1.0)) == 3
    for values in ([0.0, 1.0, 0.5], [0.0, 2.0], [1.0, 2.0], [0.0, 0.0], [*map(float, range(11))]):
        assert classes_in(column(*values)) == 0
    assert classes_in(torch.tensor([[0.0, 1.0], [1.0, 0.0]])) == 0
