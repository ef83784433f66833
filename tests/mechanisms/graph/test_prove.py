"""Prove: a shortcut is accepted only if it computes what the slow way computes."""

import re

import pytest
import torch

from pluribus.mechanisms.graph.prove import prove

right = torch.tensor([[1.0, 2.0], [3.0, float("nan")]], dtype=torch.float64)


def test_equal_outputs_are_proved():
    assert prove(lambda: right.clone(), lambda: right) == ""


def test_rounding_is_accepted():
    assert prove(lambda: right * (1 + 1e-12), lambda: right) == ""


def raising():
    raise ValueError("no such axis")


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (lambda: right + 1e-4, "differ by 3.3e-05 of the largest"),
        (lambda: right[:1], r"shape \(1, 2\), expected \(2, 2\)"),
        (lambda: right.nan_to_num(), "other outputs are NaN"),
        (raising, "ValueError: no such axis"),
    ],
    ids=["values", "shape", "nan", "error"],
)
def test_other_outputs_are_not_proved(new, reason):
    assert re.search(reason, prove(new, lambda: right))


def test_errors_of_the_slow_way_are_raised():
    with pytest.raises(ValueError, match="no such axis"):
        prove(lambda: right, raising)
