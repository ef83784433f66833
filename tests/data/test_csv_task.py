"""CSV files: columns, classes, and cells that are refused by line and name."""

import pytest
import torch
from torch.testing import assert_close

from pluribus.data.csv_task import csv_file
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
    assert task.feature_names == ("weight", "price")  # age counts the rows
    assert (task.class_names, task.classes, task.likelihood) == (("no", "yes"), 2, Categorical())
    age = task.scaling.invert(task.test.x)[:, 1].round() / 2
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
            r"columns age, weight, smokes, price, got 'prise'. Did you mean 'price'\?",
        ),
        ([HEADER, *GOOD], {"target": "price", "features": ["wight"]}, r"Did you mean 'weight'\?"),
        ([HEADER, *GOOD], {"target": "price", "features": ["age", "price"]}, "got 'price' twice"),
        ([HEADER, *GOOD], {"target": "price", "features": []}, "at least one column, got none"),
        ([HEADER, *GOOD], {"target": "price", "delimiter": ";"}, "Is ';' the delimiter of the file"),
        (
            [HEADER, *GOOD],
            {"target": "smokes", "likelihood": "gaussian"},
            "column 'smokes' must hold finite numbers, got 'no' in line 2. Correct it, or use",
        ),
        (
            ["a,b", "1,2", "2,4", "3,inf"],
            {"target": "b"},
            "'b' must hold finite numbers, got 'inf' in line 4",
        ),
        (["a,b", "1,", "2,?"], {"target": "b"}, "column 'b' must hold what to predict, got blanks alone"),
        (["a,b", "1,2", "1,2,3"], {"target": "b"}, "2 cells in each row, got 3 in line 3"),
        (["a,a", "1,2"], {"target": "a"}, "must name each column once, got 'a' twice"),
        (["a,b"], {"target": "b"}, "must hold a header and rows, got no rows"),
        (["a,b", '1,"2'], {"target": "b"}, "must be a CSV file, got unexpected end of data in line 2"),
        (["a,b", "1,2"], {"target": "b"}, "got 1 samples of 1 classes. Add samples"),
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


def test_rows_without_a_target_are_left_out_with_a_note(tmp_path):
    lines = ["a,b", *(f"{7 * i % 11},{'' if i % 10 == 0 else i}" for i in range(40))]
    task = csv_file(write(tmp_path, lines), "b")
    assert len(task.train) + len(task.validation) + len(task.test) == 36
    assert task.notes == ("4 of 40 rows have no b and were left out.",)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(InputError, match=r"none.csv must be a whole file of its kind, got no file"):
        csv_file(tmp_path / "none.csv", "b")
    (tmp_path / "bytes.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(InputError, match=r"bytes.csv must be text in UTF-8, got the byte 0xff"):
        csv_file(tmp_path / "bytes.csv", "b")


def test_wide_tables_are_read(tmp_path):
    names = [f"c{i}" for i in range(20_000)]
    lines = [",".join(names), *(",".join(str(row + i % 7) for i in range(len(names))) for row in range(10))]
    # c77 is the target, and c0 and c1 count the rows.
    assert csv_file(write(tmp_path, lines), "c77").input_shape == (19_997,)
    with pytest.raises(InputError, match=r"has the columns c0, c1, .* and 19990 more, got 'none'"):
        csv_file(write(tmp_path, lines), "none")


def test_memory_of_a_table_is_limited(tmp_path):
    path = write(tmp_path, [HEADER, *GOOD])
    with pytest.raises(InputError, match=r"cells of .*table.csv must take at most 10000 bytes.*most_bytes"):
        csv_file(path, "price", features=["age"], most_bytes=10_000)


@pytest.mark.parametrize("delimiter", ["", ";;", "\n", 3, '"'])
def test_impossible_delimiters_are_refused(tmp_path, delimiter):
    with pytest.raises(SettingError, match="delimiter must be one character"):
        csv_file(write(tmp_path, [HEADER, *GOOD]), "price", delimiter=delimiter)
