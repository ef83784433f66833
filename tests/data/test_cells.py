"""Cells: numbers, dates, true and false, blanks."""

from decimal import Decimal

import numpy as np
import pandas
import pytest
import torch

from pluribus.data.cells import (
    MISSING_WORDS,
    by_value,
    find_missing,
    plain_numbers,
    read_cells,
    to_flag,
    to_number,
    to_word,
)

WORDS = frozenset(MISSING_WORDS)


def test_missing_cells_are_found_whatever_their_case():
    blank = ["", " ", "NA", "n/a", "NaN", "None", "?", ".", "-", None, float("nan")]
    cells = [*blank, "0", 0, False, "no", "nano", "-1", ".5"]
    assert find_missing(cells, WORDS).tolist() == [True] * len(blank) + [False] * 7


@pytest.mark.parametrize(
    "cell",
    [Decimal("sNaN"), np.zeros(2), torch.zeros(2), torch.zeros((), device="meta")],
    ids=["decimal", "array", "tensor", "meta"],
)
def test_cells_that_do_not_compare_are_there_and_no_numbers(cell):
    assert find_missing([cell, 1], WORDS).tolist() == [False, False]
    assert np.isnan(read_cells([cell, "a"], to_number)).all()


def test_missing_values_of_pandas_are_missing():
    assert find_missing([pandas.NA, pandas.NaT, 1, "a"], WORDS).tolist() == [True, True, False, False]


def test_tensors_with_gradients_are_read_one_by_one():
    assert plain_numbers([torch.tensor(2.0, requires_grad=True)] * 2) is None


def test_numbers_are_read_and_words_are_nan():
    cells = ["1", " 2.5 ", "-1e3", 4, True, "1_000", "a", None, [1]]
    np.testing.assert_equal(read_cells(cells, to_number), [1, 2.5, -1000, 4, 1, *[np.nan] * 4])


def test_numbers_as_people_write_them_are_read():
    cells = ["1,234", "-1,234,567.5", "$12", "-$1,200.50", " 45 % ", "3 €", "£7"]
    np.testing.assert_equal(read_cells(cells, to_number), [1234, -1234567.5, 12, -1200.5, 45, 3, 7])


@pytest.mark.parametrize(
    "cell", ["12,5", "0,125", "-00,125", "1,2345", "12,345,6", "$", "%", "$-5", "1.2.3", "5 kg", "--5", "٣ %"]
)
def test_other_forms_are_no_numbers(cell):
    assert np.isnan(to_number(cell))


@pytest.mark.parametrize("cells", [["1", "a"], ["1_0"], ["nan"], [None, 1.0], [True, False], [[1], [2]], []])
def test_columns_of_other_cells_are_not_plain(cells):
    assert plain_numbers(cells) is None


def test_plain_numbers_equal_numbers_read_one_by_one():
    cells = ["1", " 2 ", "1e-3", "-0.1"]
    np.testing.assert_array_equal(plain_numbers(cells), [to_number(cell) for cell in cells])


def test_flags():
    cells = ["yes", "No", "TRUE", "f", True, False, "1", "maybe"]
    np.testing.assert_equal(read_cells(cells, to_flag), [1, 0, 1, 0, 1, 0, np.nan, np.nan])


def test_whole_floats_and_whole_numbers_are_one_word():
    assert [to_word(cell) for cell in (1, 1.0, "1", " 1 ", 1.5, "1.0")] == ["1", "1", "1", "1", "1.5", "1.0"]


def test_by_value_calls_a_function_once_for_each_distinct_cell():
    called = []
    assert by_value(["a", "b", "a"], lambda cell: called.append(cell) or cell * 2) == ["aa", "bb", "aa"]
    assert sorted(called) == ["a", "b"]
    assert by_value([[1], [1]], len) == [1, 1]
