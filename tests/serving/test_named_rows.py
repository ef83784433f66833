"""Rows with names: every name in every row, plain cells alone."""

import pytest

from pluribus.serving.named_rows import by_name, named_columns, read_table
from pluribus.serving.refusal import Refusal


def test_values_are_collected_by_name():
    rows = [{"a": 1, "b": "x", "c": 0}, {"a": 2, "b": None}]
    assert by_name(rows, ["a", "b"]) == {"a": [1, 2], "b": ["x", None]}
    assert read_table(rows, ["b"], blanks=True) == {"b": ["x", None]}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"a": 1}, {"b": 1}], "row 2 must have 'a'"),
        ([{"a": 1}, [1]], "every row must be an object"),
        ([{"a": {}}], "a cell must be a text"),
        ([{"a": None}], "must have a number in each row, got null"),
        ([{"a": float("nan")}], "must be finite"),
    ],
)
def test_other_rows_are_refused(rows, message):
    with pytest.raises(Refusal, match=message):
        read_table(rows, ["a"], blanks=False)


def test_names_alone_make_columns_of_numbers():
    found = named_columns({"columns": None, "feature_names": ["a", "b"]})
    assert found.features == ("a", "b")
    assert named_columns({"columns": None, "feature_names": []}) is None
    assert named_columns({"columns": None, "feature_names": ["a", "a"]}) is None
