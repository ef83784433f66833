"""The record of columns: JSON and back without a difference, and damage that is refused."""

import json

import numpy as np
import pytest

from pluribus.data.column_kinds import learn_columns
from pluribus.data.column_record import SCHEMA, columns_from_dict, columns_to_dict
from pluribus.errors import CheckpointError

TABLE = {
    "size": ["0.1", "", "0.3", "7"],
    "born": ["2001-02-03", "2004-05-06", "2001-02-03", "1999-12-31"],
    "colour": ["red", "blue", "red", "blue"],
    "smokes": ["yes", "no", "no", "yes"],
    "name": ["a", "b", "c", "d"],
}


def record():
    return json.loads(json.dumps(columns_to_dict(learn_columns(TABLE))))


def test_record_gives_the_columns_back():
    found = columns_from_dict(record())
    assert found == learn_columns(TABLE)
    np.testing.assert_array_equal(found.encode(TABLE).values, learn_columns(TABLE).encode(TABLE).values)
    SCHEMA.check(record(), "")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("version",), 2),
        (("columns", 0, "kind"), "python"),
        (("columns", 0, "mean"), float("nan")),
        (("columns", 0, "mean"), "1"),
        (("columns", 0, "missing"), -1),
        (("columns", 2, "categories"), [1]),
        (("columns", 0), []),
        (("missing_words",), "x"),
    ],
)
def test_other_values_do_not_match_the_schema(place, value):
    damaged = record()
    inner = damaged
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(ValueError, match="must be"):
        SCHEMA.check(damaged, "")


def test_values_that_contradict_one_another_are_refused():
    twice = record()
    twice["columns"][1]["name"] = "size"
    with pytest.raises(CheckpointError, match="columns must have each name once"):
        columns_from_dict(twice)
    flat = record()
    flat["columns"][0]["deviation"] = 0
    with pytest.raises(CheckpointError, match="deviation of column 'size' must be above 0"):
        columns_from_dict(flat)
    doubled = record()
    doubled["columns"][2]["categories"] = ["red", "red"]
    with pytest.raises(CheckpointError, match="categories of column 'colour' must have each name once"):
        columns_from_dict(doubled)
    unused = record()
    unused["columns"] = unused["columns"][-1:]
    with pytest.raises(CheckpointError, match="a column must be used"):
        columns_from_dict(unused)
