"""Delimiters: found where they alone part the header; decimal commas between semicolons."""

import pytest

from pluribus.data.table_chunks import read_table


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_another_delimiter_is_found_where_it_alone_parts_the_header(tmp_path, delimiter):
    path = tmp_path / "t.csv"
    path.write_text(f"a{delimiter}b\n1{delimiter}2\n")
    assert read_table(path).cells == {"a": ["1"], "b": ["2"]}


def test_the_given_delimiter_comes_first(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b,c\n1;2,3\n")
    assert read_table(path).cells == {"a;b": ["1;2"], "c": ["3"]}
    assert read_table(path, ";").cells == {"a": ["1"], "b,c": ["2.3"]}


def test_decimal_commas_are_points_between_semicolons(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b;c\n-12,5;x, y;1,2,3\n")
    assert read_table(path).cells == {"a": ["-12.5"], "b": ["x, y"], "c": ["1,2,3"]}
    path.write_text('a|b\n"12,5"|1\n')
    assert read_table(path).cells["a"] == ["12,5"]
