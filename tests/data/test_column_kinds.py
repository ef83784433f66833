"""Kinds of columns: recognised from training rows alone, overridden by name."""

import numpy as np
import pytest

from pluribus.data.column_kinds import learn_columns
from pluribus.errors import InputError, SettingError

COUNT = 40
OTHER = {"other": [str(i * 7 % 11) for i in range(COUNT)]}


def kind_of(name, cells, first=False, **options):
    table = {name: cells} | OTHER if first else OTHER | {name: cells}
    return next(column for column in learn_columns(table, **options) if column.name == name)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([str(i * 3 % 17) for i in range(COUNT)], "number"),
        ([i / 3 for i in range(COUNT)], "number"),
        (["1.5", "NA", "?", "2"] * 10, "number"),
        (["yes", "no"] * 20, "boolean"),
        ([True, False] * 20, "boolean"),
        (["True", "", "False", "False"] * 10, "boolean"),
        ([f"2024-01-{i % 28 + 1:02}" for i in range(COUNT)], "date"),
        (["red", "green", "", "blue"] * 10, "category"),
        (["I", "II", "III", "IV"] * 10, "category"),
        ([f"Mr {i}" for i in range(COUNT)], "dropped"),
        ([f"Mr {i % 30}" for i in range(COUNT)], "dropped"),
        (["7"] * COUNT, "dropped"),
        ([None] * COUNT, "dropped"),
        (["", "x"] * 20, "category"),
    ],
)
def test_kind_follows_from_the_cells(cells, kind):
    assert kind_of("it", cells).kind == kind


def test_more_words_than_the_limit_are_text():
    words = [f"w{i % 65}" for i in range(650)]
    found = learn_columns({"x": [str(i * 7 % 11) for i in range(650)], "it": words})
    note = "text: 65 different values in 650 rows"
    assert found.columns[1].note == f"{note}, more than 64; kinds='it=code' learns a vector for each"
    found = learn_columns({"x": [str(i * 7 % 11) for i in range(100)], "it": words[:100]})
    assert found.columns[1].note == "text: 65 different values in 100 rows"


def test_dates_that_are_not_read_are_named():
    table = {"day": [f"{day}/{month}/2024" for day in range(1, 11) for month in (1, 2)], "x": [*range(5, 25)]}
    note = learn_columns(table).columns[0].note
    assert note == "dates with the day or the month first: 1/1/2024; write the year first"
    table["day"] = [cell.replace("/", ".") for cell in table["day"]]
    assert learn_columns(table).columns[0].kind == "date"


@pytest.mark.parametrize(
    "name", ["id", "patient_id", "Index", "", "CustomerID", "pid", "Unnamed: 0", "pidnum"]
)
def test_ids_are_dropped_by_name(name):
    cells = [str(1000 + i * 37 % 101) for i in range(COUNT)]
    assert kind_of(name, cells).note == "an id: a whole number of its own in every row"
    assert kind_of(name, [cell[:3] for cell in cells]).kind == "number"  # numbers repeat
    assert kind_of(name, [f"{cell}.5" for cell in cells]).kind == "number"


def test_an_id_by_name_may_come_again():
    twice = [str(5000 + i * 37 % 25) for i in range(25)] + [str(5000 + i) for i in range(COUNT - 25)]
    assert COUNT == 40
    assert kind_of("patient_id", twice).note == "an id by its name: 25 different whole numbers in 40 rows"
    assert kind_of("dose", twice).kind == "number"
    assert kind_of("ward_id", [str(i % 20) for i in range(COUNT)]).kind == "number"  # a group
    assert kind_of("patient_id", twice, keep=["patient_id"]).kind == "number"


def test_a_first_column_that_counts_the_rows_is_an_index():
    for start in (0, 1):
        counted = [str(i + start) for i in range(COUNT)]
        rows = [2, 3, 7, 11, 30]
        assert kind_of("x", counted, first=True, rows=rows).kind == "dropped"
        assert kind_of("x", counted, first=False, rows=rows).kind == "number"
        assert kind_of("x", counted, first=True, rows=rows, keep=["x"]).kind == "number"
    assert learn_columns({"x": counted}).columns[0].kind == "number"  # alone, it is meant
    years = [str(1990 + i) for i in range(COUNT)]
    assert kind_of("x", years, first=True).kind == "number"
    both = learn_columns({"rownames": counted, "order": counted} | OTHER | {"last": counted})
    assert [column.kind for column in both] == ["dropped", "dropped", "number", "number"]


def test_nothing_is_learnt_from_other_rows():
    table = {"a": [str(i * 7 % 13) for i in range(20)], "b": ["x", "y"] * 10}
    spoilt = {"a": [*table["a"][:10], *["-999", "word"] * 5], "b": [*table["b"][:10], *["z", ""] * 5]}
    rows = range(10)
    assert learn_columns(spoilt, rows) == learn_columns(table, rows)
    assert learn_columns(spoilt, rows).columns[1].categories == ("x", "y")


def test_statistics_are_those_of_numpy():
    column = kind_of("it", ["1", "", "4", "7"] * 10)
    values = np.array([1.0, 4, 7] * 10)
    assert (column.mean, column.fill, column.low, column.high) == (4, 4, 1, 7)
    np.testing.assert_allclose(column.deviation, values.std())
    assert column.missing == 10
    equal = kind_of("it", ["0.1", "0.10"] * 20)
    assert (equal.mean, equal.deviation) == (0.1, 1.0)


def test_kinds_may_be_given():
    cells = [str(i % 5) for i in range(COUNT)]
    assert kind_of("zip", cells, kinds={"zip": "category"}).categories == ("0", "1", "2", "3", "4")
    assert kind_of("zip", cells, kinds={"zip": "code"}).features == ("zip",)
    assert kind_of("zip", cells, kinds={"zip": "dropped"}).note == "by choice"
    assert kind_of("id", [str(i) for i in range(COUNT)], kinds={"id": "number"}).kind == "number"
    assert len(kind_of("x", [f"w{i}" for i in range(COUNT)], kinds={"x": "category"}).categories) == COUNT


def test_words_may_stand_for_missing_values():
    cells = ["1", "unknown", "3", "5"] * 10
    assert kind_of("it", cells, missing_words=["Unknown"]).missing == 10
    with pytest.raises(
        InputError, match=r"'it' must hold numbers or words, got both: 'unknown', but 75% numbers"
    ):
        kind_of("it", cells)


def test_numbers_with_many_different_words_among_them_are_text():
    tickets = [str(1000 + i * 37) for i in range(30)] + [f"A/{i}" for i in range(11)]
    found = learn_columns({"ticket": tickets, "x": [i % 7 for i in range(41)]}).columns[0]
    assert (found.kind, found.note) == ("dropped", "text: 11 different words among numbers, such as 'A/0'")
    with pytest.raises(InputError, match=r"missing_words=A/0,A/1,A/2.*or kinds='ticket=dropped'"):
        learn_columns({"ticket": tickets[:-1], "x": [i % 7 for i in range(40)]})


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ({"othr": "number"}, "kinds must name columns, got 'othr'. Did you mean 'other'"),
        ({"other": "numbr"}, "kinds are number, .*, got 'numbr'. Did you mean 'number'"),
    ],
)
def test_impossible_kinds_are_refused(kinds, message):
    with pytest.raises(SettingError, match=message):
        learn_columns(OTHER, kinds=kinds)


@pytest.mark.parametrize(
    ("table", "kinds", "message"),
    [
        (
            {"a": ["x", "y"]},
            {"a": "number"},
            "column 'a' must hold finite numbers, got 'x'. Choose another kind",
        ),
        ({"a": ["", ""]}, {"a": "number"}, "got blanks alone"),
        ({"a": ["", ""]}, {"a": "category"}, "must have 1 to 10000 categories, got 0"),
        (
            {"a": ["1", "1"], "b": ["x", "y"]},
            {},
            "only dropped ones: 'a' is constant: 1; 'b' is text: 2 different",
        ),
        ({"a": ["1"], "b": ["1", "2"]}, {}, r"columns must have one length, got \[1, 2\]"),
        ({}, {}, "got no columns"),
    ],
)
def test_columns_without_use_are_refused(table, kinds, message):
    with pytest.raises(InputError, match=message):
        learn_columns(table, kinds=kinds)
