"""Checks of numbers: shape, type, range."""

import numpy as np
import pytest

from pluribus.serving.input_checks import as_bytes, check_shape, fitted, to_array
from pluribus.serving.refusal import Refusal
from pluribus.serving.tensors import Input


def test_numbers_get_the_type_of_the_input():
    assert fitted(Input("x", "float32", (2,)), np.array([[1, 2]])).dtype == np.float32
    assert fitted(Input("x", "bool", ()), np.array([0, 1])).tolist() == [False, True]
    assert to_array("x", [[1, 2.5]]).tolist() == [[1, 2.5]]


@pytest.mark.parametrize(
    ("dtype", "values", "message"),
    [
        ("uint8", [300], "whole numbers from 0 to 255"),
        ("uint8", [-1], "whole numbers from 0 to 255"),
        ("bool", [2], "whole numbers from 0 to 1"),
        ("int64", [0.5], "whole numbers from"),
        ("float16", [1e6], "numbers that float16 can hold"),
        ("float32", [np.inf], "must be finite"),
    ],
)
def test_numbers_out_of_range_are_refused(dtype, values, message):
    with pytest.raises(Refusal, match=message):
        fitted(Input("x", dtype, ()), np.array(values))


def test_named_sizes_take_any_size_but_zero():
    image = Input("x", "float32", (1, "height"))
    check_shape(image, np.zeros((2, 1, 7)))
    for shape in ((2, 1, 0), (2, 2, 7), (2, 1), (2, 1, 7, 1)):
        with pytest.raises(Refusal, match="must have the shape"):
            check_shape(image, np.zeros(shape))


@pytest.mark.parametrize("values", [[np.nan, 1.0], [0.5], [np.inf], [-1], [256], [], [[]]], ids=str)
def test_numbers_that_are_no_bytes_are_refused(values):
    with pytest.raises(Refusal, match="bytes must be"):
        as_bytes(np.array(values))


def test_bytes_stay_what_they_are():
    assert as_bytes(np.array([0.0, 255.0])).tolist() == [0, 255]
    assert as_bytes(np.array([True, False])).dtype == np.uint8


@pytest.mark.parametrize("values", ["1", ["1", 2], [None], [{}], [[1, "2"]], [10**30]], ids=str)
def test_anything_but_numbers_is_refused(values):
    with pytest.raises(Refusal, match="must hold numbers alone"):
        to_array("x", values)


@pytest.mark.parametrize("values", [[[1], [1, 2]], [1, [2]], [[[1]], [2]]], ids=str)
def test_ragged_lists_are_refused(values):
    with pytest.raises(Refusal, match="ragged"):
        to_array("x", values)


def test_a_long_text_among_numbers_takes_no_memory(monkeypatch):
    # NumPy gives every number the room of the longest text: 12 GB for a megabyte of JSON.
    monkeypatch.setattr(np, "array", None)
    with pytest.raises(Refusal, match="must hold numbers alone"):
        to_array("x", [["a" * 1_000_000, *[1] * 3000]])
