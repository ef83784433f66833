"""Cells: numbers, dates, true and false, blanks."""

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas
import pytest
import torch

from pluribus.data.cells import (
    MISSING_WORDS,
    by_value,
    find_missing,
    is_ambiguous_date,
    plain_numbers,
    read_cells,
    to_date,
    to_days,
    to_flag,
    to_number,
    to_word,
)

WORDS = frozenset(MISSING_WORDS)


def test_missing_cells_are_found_whatever_their_case():
    cells = ["", " ", "NA", "n/a", "NaN", "None", "?", None, float("nan"), "0", 0, False, "no", "nano"]
    assert find_missing(cells, WORDS).tolist() == [True] * 9 + [False] * 5


@pytest.mark.parametrize(
    "cell", [Decimal("sNaN"), np.zeros(2), torch.zeros(2)], ids=lambda one: type(one).__name__
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


@pytest.mark.parametrize("cells", [["1", "a"], ["1_0"], ["nan"], [None, 1.0], [True, False], [[1], [2]], []])
def test_columns_of_other_cells_are_not_plain(cells):
    assert plain_numbers(cells) is None


def test_plain_numbers_equal_numbers_read_one_by_one():
    cells = ["1", " 2 ", "1e-3", "-0.1"]
    np.testing.assert_array_equal(plain_numbers(cells), [to_number(cell) for cell in cells])


def test_flags():
    cells = ["yes", "No", "TRUE", "f", True, False, "1", "maybe"]
    np.testing.assert_equal(read_cells(cells, to_flag), [1, 0, 1, 0, 1, 0, np.nan, np.nan])


def test_dates_are_days_since_1970():
    zone = timezone(timedelta(hours=12))
    cells = ["1970-01-02", "1970/01/03", "1970-01-01 12:00", "1970-01-02T00:00:00+12:00", date(1971, 1, 1)]
    cells += [datetime(1970, 1, 2, tzinfo=zone), "01/02/1970", "1970", "19700101", "text", None]
    expected = [1, 2, 0.5, 0.5, 365, 0.5, *[np.nan] * 5]
    np.testing.assert_equal(read_cells(cells, to_days), expected)
    assert to_date(365.4) == "1971-01-01"


def test_missing_dates_are_nan():
    assert np.isnan(read_cells([pandas.NaT, None], to_days)).all()


def test_dates_with_dots_begin_with_the_day():
    cells = ["3.1.1970", "03.01.1970", " 31.12.1970 12:00", "12.31.1970", "1.2.70", "1.1.19700"]
    np.testing.assert_equal(read_cells(cells, to_days), [2, 2, 364.5, *[np.nan] * 3])


@pytest.mark.parametrize(
    ("cell", "ambiguous"),
    [
        ("01/02/1970", True),
        ("1-2-70", True),
        ("1970-01-02", False),
        ("1/2", False),
        ("1/2-70", False),
        (3, False),
    ],
)
def test_dates_that_begin_with_day_or_month_are_ambiguous(cell, ambiguous):
    assert is_ambiguous_date(cell) == ambiguous


def test_whole_floats_and_whole_numbers_are_one_word():
    assert [to_word(cell) for cell in (1, 1.0, "1", " 1 ", 1.5, "1.0")] == ["1", "1", "1", "1", "1.5", "1.0"]


def test_by_value_calls_a_function_once_for_each_distinct_cell():
    called = []
    assert by_value(["a", "b", "a"], lambda cell: called.append(cell) or cell * 2) == ["aa", "bb", "aa"]
    assert sorted(called) == ["a", "b"]
    assert by_value([[1], [1]], len) == [1, 1]
