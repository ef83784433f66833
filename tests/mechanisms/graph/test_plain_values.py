"""Plain values: the same value comes back, and unknown ones are refused."""

import math

import pytest
import torch

from pluribus.errors import InputError
from pluribus.mechanisms.graph.plain_values import plain_from_data, plain_to_data
from pluribus.schema import Mismatch

VALUES = [None, True, 3, 0.5, math.inf, -math.inf, "tanh", torch.float64, torch.bool, torch.device("cuda:1")]
VALUES += [torch.channels_last, torch.strided]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_a_plain_value_comes_back(value):
    again = plain_from_data(plain_to_data(value), "args")
    assert again == value
    assert type(again) is type(value)


def test_nan_comes_back():
    assert math.isnan(plain_from_data(plain_to_data(math.nan), "args"))


@pytest.mark.parametrize(
    "wrong",
    [{"dtype": "object"}, {"device": "file:1"}, {"float": "1"}, {"text": 1}, {}, {"a": 1, "b": 2}],
)
def test_unknown_values_are_refused(wrong):
    with pytest.raises(Mismatch, match="plain arguments"):
        plain_from_data(wrong, "args")


def test_objects_are_not_written():
    with pytest.raises(InputError, match="plain arguments, got object"):
        plain_to_data(object())
