"""Tables for spreadsheets hold no formulas."""

import csv

import pytest

import pluribus as pl
from pluribus.cli.spreadsheet import safe_cell, write_table


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\tx", "\rx"])
def test_texts_that_look_like_formulas_are_marked(text):
    assert safe_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["cat", "-1", "+2.5", "-inf", "a=b", "", -1, -0.5, None])
def test_other_cells_stay_as_they_are(value):
    assert safe_cell(value) == value


def test_names_and_cells_of_a_table_are_safe(tmp_path):
    write_table(tmp_path / "a.csv", {"labels": ["=1+1", "dog"], "=p": [-0.5, 0.25]})
    with (tmp_path / "a.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["labels", "'=p"], ["'=1+1", "-0.5"], ["dog", "0.25"]]


def test_a_table_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(pl.SettingError, match="--out must be a file that can be written"):
        write_table(tmp_path, {"a": [1]})
