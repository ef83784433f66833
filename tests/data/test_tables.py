"""Tables: CSV, Parquet and DataFrames give the same cells."""

import datetime
from decimal import Decimal

import pytest

from pluribus.data.column_kinds import learn_columns
from pluribus.data.table_chunks import read_table
from pluribus.data.tables import check_columns, from_frame, is_number
from pluribus.errors import InputError

LINES = [
    "a,b,c,d",
    "1,red,2024-01-02,True",
    ",blue,2024-02-03,False",
    "3,,2024-03-04,True",
    "5,red,2024-01-02,True",
]


def write(folder, lines=LINES):
    path = folder / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_columns_have_their_cells_and_rows_their_lines(tmp_path):
    table = read_table(write(tmp_path, [*LINES[:2], "", *LINES[2:]]))
    assert list(table.cells) == ["a", "b", "c", "d"]
    assert list(table.cells["b"]) == ["red", "blue", "", "red"]
    assert (len(table), list(table.lines)) == (4, [2, 4, 5, 6])
    part = table.take([1, 3]).select(["a"])
    assert (part.cells, part.lines) == ({"a": ["", "5"]}, [4, 6])


def test_a_frame_is_the_table_of_its_file(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(write(tmp_path), parse_dates=["c"])
    frame["b"] = frame["b"].astype("category")
    frame.index = [9, 8, 7, 6]
    found = from_frame(frame)
    assert found.cells["a"] == [1.0, None, 3.0, 5.0]
    assert found.cells["d"] == [True, False, True, True]
    kinds = {"c": "date", "b": "category"}
    assert learn_columns(found.cells, kinds=kinds) == learn_columns(
        read_table(write(tmp_path)).cells, kinds=kinds
    )


def test_parquet_is_read(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"a": [1, None, 3], "c": [datetime.date(2024, 1, 2)] * 3, "__index_level_0__": [0, 1, 2]}
    parquet.write_table(arrow.table(columns), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    assert table.cells == {"a": [1, None, 3], "c": [datetime.date(2024, 1, 2)] * 3}
    with pytest.raises(InputError, match="must take at most 100 bytes"):
        read_table(tmp_path / "t.parquet", most_bytes=100)
    (tmp_path / "t.parquet").write_bytes(b"PAR1 cut")
    with pytest.raises(InputError, match=r"t.parquet must be a whole file of its kind"):
        read_table(tmp_path / "t.parquet")


class Unsearchable(list):
    """A list that must not be searched, which takes time in proportion to its length."""

    def _refuse(self, *_):
        raise AssertionError("searched for a name")

    index = count = __contains__ = _refuse


def test_names_are_looked_up_in_constant_time(tmp_path):
    names = [f"c{i}" for i in range(100)]
    table = read_table(write(tmp_path, [",".join(names), ",".join("1" * 100)]))
    check_columns(table, Unsearchable(names))


def test_names_that_are_not_there_are_refused_with_the_nearest(tmp_path):
    table = read_table(write(tmp_path, ["colour,b", "1,2"]))
    with pytest.raises(InputError, match=r"has the columns colour, b, got 'color'. Did you mean 'colour'\?"):
        check_columns(table, ["color"])
    with pytest.raises(InputError, match="target and features must name each column once, got 'b' twice"):
        check_columns(table, ["b", "b"])


def test_is_number():
    assert [is_number(cell) for cell in ("1", "-2.5e3", "a", "")] == [True, True, False, False]


def test_a_frame_may_hold_cells_that_pandas_does_not_compare():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [Decimal("sNaN"), pandas.NA, None, 1.5]})
    cells = from_frame(frame).cells["a"]
    assert cells[0].is_snan()
    assert cells[1:] == [None, None, 1.5]
