"""Tables for spreadsheets hold no formulas."""

import pytest

from pluribus.cli.spreadsheet import safe_cell


@pytest.mark.parametrize(
    "text", ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\tx", "\rx", "\nx", " =1+1", "\uff1d1"]
)
def test_texts_that_look_like_formulas_are_marked(text):
    assert safe_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["cat", "-1", "+2.5", "-inf", "a=b", "", -1, -0.5, None])
def test_other_cells_stay_as_they_are(value):
    assert safe_cell(value) == value
