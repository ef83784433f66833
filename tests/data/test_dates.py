"""Dates: days since 1970, dots, dates that may begin with the day or the month."""

from datetime import date, datetime, timedelta, timezone

import numpy as np
import pandas
import pytest

from pluribus.data.cells import read_cells
from pluribus.data.dates import is_ambiguous_date, to_date, to_days


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
