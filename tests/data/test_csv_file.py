"""CSV files: columns, classes, and cells that are refused by line and name."""

import pytest
import torch
from torch.testing import assert_close

from pluribus.data.csv_file import check_columns, csv_file, numbers, without_formula
from pluribus.errors import InputError, SettingError
from pluribus.likelihood import Categorical, Gaussian, Point

GOOD = [f"{i},{i % 5}.5,{'yes' if i % 3 else 'no'},{2 * i}" for i in range(50)]
HEADER = "age,weight,smokes,price"


def write(folder, lines, name="table.csv", encoding="utf-8"):
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding=encoding)
    return path


def test_numbers_are_standardised_and_told_in_units(tmp_path):
    path = write(tmp_path, [HEADER, *GOOD])
    task = csv_file(path, "price", features=["age", "weight"], seed=1)
    assert (task.name, task.likelihood, task.input_shape) == ("table", Gaussian(), (2,))
    assert (len(task.train), len(task.validation), len(task.test)) == (36, 4, 10)
    assert_close(task.train.y.mean(), torch.tensor(0.0), rtol=0, atol=1e-6)
    age = task.scaling.invert(task.test.x)[:, 0]
    assert_close(task.target_scaling.invert(task.test.y)[:, 0], 2 * age, rtol=1e-5, atol=1e-5)


def test_rows_are_in_one_part_only(tmp_path):
    task = csv_file(write(tmp_path, [HEADER, *GOOD]), "price", features=["age"])
    ages = [
        task.scaling.invert(split.x).round().flatten() for split in (task.train, task.validation, task.test)
    ]
    assert_close(torch.cat(ages).sort().values, torch.arange(50.0), rtol=0, atol=1e-4)


def test_classes_are_named_in_order(tmp_path):
    path = write(tmp_path, [HEADER, *GOOD])
    task = csv_file(path, "smokes", "categorical")
    assert task.feature_names == ("age", "weight", "price")
    assert (task.class_names, task.classes, task.likelihood) == (("no", "yes"), 2, Categorical())
    assert task.input_shape == (3,)
    age = task.scaling.invert(task.test.x)[:, 0].round()
    assert_close(task.test.y, (age % 3 != 0).long(), rtol=0, atol=0)
    lines = ["x,y", *(f"{i},{10 * (i % 3)}" for i in range(30))]
    assert csv_file(write(tmp_path, lines), "y", "categorical").class_names == ("0", "10", "20")


def test_quotes_blank_lines_and_a_byte_order_mark_are_read(tmp_path):
    lines = ['"a";"the; target"', *(f'"{i}";{i}.5' for i in range(20)), "", ""]
    task = csv_file(
        write(tmp_path, lines, encoding="utf-8-sig"), "the; target", Point(), delimiter=";", test=5
    )
    assert (task.outputs, len(task.test)) == (1, 5)


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (
            [HEADER, *GOOD],
            {"target": "prise"},
            r"columns age, weight, smokes, price, however: 'prise' was asked for. Did you mean 'price'\?",
        ),
        ([HEADER, *GOOD], {"target": "price", "features": ["wight"]}, r"Did you mean 'weight'\?"),
        ([HEADER, *GOOD], {"target": "price", "features": ["age", "price"]}, "however: price twice"),
        ([HEADER, *GOOD], {"target": "price", "features": []}, "at least one column, however: none"),
        ([HEADER, *GOOD], {"target": "price", "delimiter": ";"}, "Is ';' the delimiter of the file"),
        (
            [HEADER, *GOOD],
            {"target": "price"},
            "column 'smokes' must hold numbers, however: 'no' in line 2. Fill it in",
        ),
        (
            ["a,b", "1,2", "", "3,", "5,6"],
            {"target": "b"},
            "column 'b' must hold numbers, however: '' in line 4",
        ),
        (
            ["a,b", "1,2", "nan,4", "inf,6"],
            {"target": "b"},
            "2 of 3 are NaN or infinite, the first in line 3, column 'a'. Drop these rows",
        ),
        (["a,b", "1,2", "1,2,3"], {"target": "b"}, "2 cells in each row, however: 3 in line 3"),
        (["a,a", "1,2"], {"target": "a"}, "must name each column once, however: a twice"),
        (["a,b"], {"target": "b"}, "must hold a header and rows, however: it holds no rows"),
        (["a,b", '1,"2'], {"target": "b"}, "must be a CSV file, however: unexpected end of data in line 2"),
        (["a,b", "1,2"], {"target": "b"}, "however: 1 samples of 1 classes. Add samples"),
    ],
)
def test_broken_tables_are_refused(tmp_path, lines, options, message):
    with pytest.raises(InputError, match=message):
        csv_file(write(tmp_path, lines), **options)


def test_numbers_taken_for_classes_are_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"50 samples of 50 classes. Add samples, or use the likelihood gaussian"
    ):
        csv_file(write(tmp_path, [HEADER, *GOOD]), "price", "categorical", features=["age"])


def test_a_row_without_a_class_is_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"column 'b' must name a class in each row, however: line 3 is blank"
    ):
        csv_file(write(tmp_path, ["a,b", "1,x", "2, ", "3,y"]), "b", "categorical")


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(
        InputError, match=r"none.csv must be a whole file of its kind, however: there is none"
    ):
        csv_file(tmp_path / "none.csv", "b")
    (tmp_path / "bytes.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(InputError, match=r"bytes.csv .*however: 'utf-8' codec can't decode"):
        csv_file(tmp_path / "bytes.csv", "b")


class Unsearchable(list):
    """A list that must not be searched, which takes time in proportion to its length."""

    def _refuse(self, *_):
        raise AssertionError("searched for a name")

    index = count = __contains__ = _refuse


def test_columns_are_looked_up_in_constant_time(tmp_path):
    names = [f"c{i}" for i in range(100)]
    check_columns(tmp_path, Unsearchable(names), Unsearchable(names), ",")
    found = numbers(Unsearchable(names), {2: [str(i) for i in range(100)]}, names[::-1])
    assert_close(found, torch.arange(99.0, -1, -1)[None].double())


def test_wide_tables_are_read(tmp_path):
    names = [f"c{i}" for i in range(100_000)]
    lines = [",".join(names), *(",".join([str(row)] * len(names)) for row in range(10))]
    assert csv_file(write(tmp_path, lines), "c77").input_shape == (99_999,)
    with pytest.raises(InputError, match=r"has the columns c0, c1, .* and 99990 more, however: 'none'"):
        csv_file(write(tmp_path, lines), "none")


def test_memory_of_a_table_is_limited(tmp_path):
    path = write(tmp_path, [HEADER, *GOOD])
    with pytest.raises(InputError, match=r"cells of .*table.csv must take at most 10000 bytes.*most_bytes"):
        csv_file(path, "price", features=["age"], most_bytes=10_000)


@pytest.mark.parametrize("delimiter", ["", ";;", "\n", 3, '"'])
def test_impossible_delimiters_are_refused(tmp_path, delimiter):
    with pytest.raises(SettingError, match="delimiter must be one character"):
        csv_file(write(tmp_path, [HEADER, *GOOD]), "price", delimiter=delimiter)


@pytest.mark.parametrize("cell", ["=cmd|' /C calc'!A0", "+x", "-x", "@SUM(A1)", "\tx", "\rx", " =x"])
def test_words_that_start_as_formulas_are_escaped(cell):
    assert without_formula(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", ["cat", "-1.5", "+3", "-inf", 1.5, -2, True, None, "a=b"])
def test_other_cells_stay(cell):
    assert without_formula(cell) == cell
