"""Raw inputs: columns by name, shapes, whole numbers, files that are refused."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pluribus.data import Scaling, Signature, Split, Task
from pluribus.data.column_kinds import learn_columns
from pluribus.data.far_outside import far_outside
from pluribus.data.raw_inputs import read_inputs
from pluribus.errors import InputError
from pluribus.likelihood import Point

ROWS = torch.tensor([[1.0, 20.0, 0.3], [2.0, 30.0, 0.1], [3.0, 10.0, 0.2]]).double()


def task(raw=ROWS, names=("a", "b", "c"), delimiter=","):
    scaling = (Scaling.of_channels if raw.ndim == 4 else Scaling.of_columns)(raw)
    split = Split(scaling.apply(raw), torch.arange(3.0)[:, None])
    found = Task("t", split, split, split, likelihood=Point(), scaling=scaling, feature_names=names)
    return Signature.of(found, delimiter)


def images():
    return torch.linspace(0, 1, 48).reshape(3, 1, 4, 4)


def table(folder, *lines):
    path = folder / "x.csv"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def array(folder, values):
    np.save(folder / "x.npy", values)
    return folder / "x.npy"


def test_columns_are_found_by_name_and_others_left_out(tmp_path):
    path = table(tmp_path, "c,target,b,a", "0.3,7,20,1", "0.1,8,30,2")
    assert_close(read_inputs(path, task()).values, ROWS[:2])


def test_columns_may_have_numbers_for_names(tmp_path):
    path = table(tmp_path, "2,0,1", "0.3,1,20")
    assert_close(read_inputs(path, task(names=("0", "1", "2"))).values, ROWS[:1])


def test_columns_without_known_names_are_taken_in_order(tmp_path):
    path = table(tmp_path, "z,y,x", "1,20,0.3")
    assert_close(read_inputs(path, task(names=())).values, ROWS[:1])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["1,20,0.3", "2,30,0.1"],
            "first line of .* must name the 3 features a, b, c, got numbers",
        ),
        (
            ["a,b,d", "1,2,3"],
            "has the columns a, b, d, got 'c'",
        ),
        (["A,b,c", "1,2,3"], "got 'a'. Did you mean 'A'"),
        (["a,b,c"], "must hold a header and rows, got no rows"),
        ([], "must hold a header and rows, got no rows"),
        (["a,b,c", "1,,3"], "column 'b' must hold finite numbers, got '' in line 2"),
        (["a,b,c,a", "1,2,3,4"], "must name each column once, got 'a' twice"),
    ],
)
def test_tables_that_do_not_fit_are_refused(lines, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read_inputs(table(tmp_path, *lines), task())


def test_too_many_columns_without_names_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"must have the shape \[3\] of the training inputs, got \[4\]"):
        read_inputs(table(tmp_path, "a,b,c,d", "1,2,3,4"), task(names=()))


@pytest.mark.parametrize("kind", ["int64", "int32", "uint16", "float16", ">f8", "bool"])
def test_whole_and_other_numbers_are_numbers(kind, tmp_path):
    values = np.array([[1, 0, 1], [0, 0, 1]]).astype(kind)
    raw = read_inputs(array(tmp_path, values), task()).values
    assert_close(task().prepare(raw), task().prepare(torch.from_numpy(values.astype("float64"))))


def test_bytes_are_shares_of_255(tmp_path):
    values = np.full((2, 1, 4, 4), 51, np.uint8)
    found = task(images(), ()).prepare(read_inputs(array(tmp_path, values), task(images(), ())).values)
    assert_close(found, task(images(), ()).prepare(torch.full((2, 1, 4, 4), 0.2)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            np.zeros((2, 1, 5, 5)),
            r"must have the shape \[1, 4, 4\] .*, got \[1, 5, 5\]",
        ),
        (np.full((2, 1, 4, 4), np.nan), "NaN"),
        (np.array([["a", "b"]]), r"must hold numbers \[count, ...\], got <U1 of shape \[1, 2\]"),
        (np.array([[None, 1]]), "must hold numbers, got pickled objects"),
        (np.zeros((0, 1, 4, 4)), "got none"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(values, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read_inputs(array(tmp_path, values), task(images(), ()))


def test_archives_hold_x_or_are_refused_with_the_names_there(tmp_path):
    np.savez(tmp_path / "good.npz", x=ROWS.numpy())
    assert_close(read_inputs(tmp_path / "good.npz", task()).values, ROWS, rtol=0, atol=0)
    np.savez(tmp_path / "other.npz", y=ROWS.numpy(), z=1)
    with pytest.raises(InputError, match="must hold the inputs as x, got y, z"):
        read_inputs(tmp_path / "other.npz", task())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.dat", b"1 2 3", "inputs must be one of .csv, .tsv, .txt, .parquet, .npy, .npz, got .*x.dat"),
        ("x.npy", b"no array", "must be a whole .npy file of numbers, got one that is cut short"),
        ("x.npy", b"", "must be a whole .npy file"),
        ("x.npz", b"PK\x03\x04 half", "must be a whole .npz file"),
    ],
)
def test_foreign_and_broken_files_are_refused_without_advice_on_pickle(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as refused:
        read_inputs(tmp_path / name, task())
    assert "pickle" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="must be a file of inputs, got no file"):
        read_inputs(tmp_path / "x.npy", task())


def test_bytes_of_features_are_numbers_and_no_shares_of_255(tmp_path):
    values = np.array([[1, 9, 3]], dtype=np.uint8)
    assert_close(
        read_inputs(array(tmp_path, values), task()).values, torch.tensor([[1.0, 9.0, 3.0]]).double()
    )


@pytest.mark.parametrize("place", [1, 3])
def test_channels_may_be_first_last_or_none(tmp_path, place):
    of_images = task(images(), ())
    channels, *sides = of_images.input_shape
    grey = np.arange(2 * int(np.prod(sides)), dtype=np.uint8).reshape(2, *sides)
    stacked = np.stack([grey] * channels, place)
    assert read_inputs(array(tmp_path, stacked), of_images).values.shape == (2, *of_images.input_shape)
    if channels == 1:
        assert read_inputs(array(tmp_path, grey), of_images).values.shape == (2, 1, *sides)


def test_the_delimiter_of_the_file_may_be_another(tmp_path):
    path = table(tmp_path, "a;b;c", "1;2;3")
    assert_close(read_inputs(path, task(delimiter=";")).values, torch.tensor([[1.0, 2.0, 3.0]]).double())
    assert_close(read_inputs(path, task()).values, torch.tensor([[1.0, 2.0, 3.0]]).double())
    with pytest.raises(InputError, match="Is ',' the delimiter of the file"):
        read_inputs(table(tmp_path, "a:b:c", "1:2:3"), task())


def test_cells_of_a_table_are_encoded_and_rows_unlike_training_flagged(tmp_path):
    columns = learn_columns(
        {"age": ["1", "2", "4"], "sex": ["f", "m", "f"], "name": ["x", "y", "z"]}, kinds={"sex": "category"}
    )
    raw = torch.from_numpy(columns.encode({"age": ["1", "2", "4"], "sex": ["f", "m", "f"]}).values)
    scaling = Scaling(torch.from_numpy(columns.means), torch.from_numpy(columns.deviations))
    split = Split(scaling.apply(raw), torch.arange(3.0)[:, None])
    found = Task(
        "t", split, split, split, Point(), scaling=scaling, feature_names=columns.features, columns=columns
    )
    read = read_inputs(table(tmp_path, "sex,age", "m,3", "d,", "f,9"), Signature.of(found))
    assert_close(read.values, torch.tensor([[3.0, 0, 1], [7 / 3, 0, 0], [9, 1, 0]]).double())
    assert read.flags == ("", "missing age; unseen sex=d", "")
    assert "'age' ranges from" in far_outside(read.values, Signature.of(found))
