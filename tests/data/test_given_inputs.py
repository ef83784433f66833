"""Inputs in memory to predict for: the same numbers as of a file, and errors that name what fits."""

import numpy as np
import pandas
import pytest
import torch
from torch.testing import assert_close

import pluribus as pl
from pluribus.data import Split, Task, csv_file
from pluribus.data.given_inputs import given_inputs
from pluribus.data.raw_inputs import read_inputs
from pluribus.data.signature import Signature


@pytest.fixture
def table(tmp_path):
    """The path of a table, and the signature of its task."""
    path = tmp_path / "t.csv"
    draws = np.random.default_rng(0).normal(size=80)
    colours = ["red", "blue"] * 40
    lines = [f"{a:.3f},{b},{'yes' if a > 0 else 'no'}" for a, b in zip(draws, colours, strict=True)]
    path.write_text("\n".join(["size,colour,ill", *lines]) + "\n")
    return path, Signature.of(csv_file(path, target="ill"))


def pictures():
    x, y = torch.rand(12, 1, 4, 4), torch.arange(12) % 2
    parts = [Split(x, y)] * 3
    return Signature.of(Task("pictures", *parts, likelihood=pl.Categorical(), classes=2))


def of_two_inputs():
    split = Split({"a": torch.randn(8, 3), "mask": torch.ones(8, 5, dtype=torch.bool)}, torch.arange(8) % 2)
    return Signature.of(Task("two", split, split, split, likelihood=pl.Categorical(), classes=2))


def test_a_table_gives_the_same_numbers_in_every_form(table):
    path, signature = table
    from_file = given_inputs(str(path), signature)
    assert_close(from_file.values, read_inputs(path, signature).values)
    frame = pandas.read_csv(path)
    from_frame = given_inputs(frame, signature)
    assert_close(from_frame.values, from_file.values)
    assert_close(given_inputs(frame.to_dict("list"), signature).values, from_file.values)
    assert given_inputs(from_frame, signature) is from_frame


def test_rows_unlike_training_are_flagged(table):
    raw = given_inputs({"size": ["1", ""], "colour": ["green", "red"]}, table[1])
    assert raw.flags[0] == "unseen colour=green"
    assert "missing size" in raw.flags[1]


def test_arrays_and_tensors_are_read_alike():
    signature, values = pictures(), np.random.default_rng(0).random((3, 4, 4, 1)).astype(np.float32)
    raw = given_inputs(values, signature)
    assert raw.values.shape == (3, 1, 4, 4)
    assert_close(given_inputs(torch.from_numpy(values), signature).values, raw.values)
    half = torch.zeros(2, 1, 4, 4, dtype=torch.bfloat16)
    assert given_inputs(half, signature).values.dtype == torch.float32


def test_several_inputs_are_given_by_name(tmp_path):
    signature = of_two_inputs()
    values = {"a": torch.randn(4, 3), "mask": np.ones((4, 5))}
    raw = given_inputs(values, signature)
    assert len(raw) == 4
    assert raw.values["mask"].dtype == torch.bool
    np.savez(tmp_path / "x.npz", a=values["a"].numpy(), mask=values["mask"])
    assert_close(given_inputs(tmp_path / "x.npz", signature).values, raw.values)
    with pytest.raises(pl.InputError, match=r"must be a dict with a, mask, .*, got Tensor"):
        given_inputs(torch.zeros(4, 3), signature)
    with pytest.raises(pl.InputError, match="as many rows in each of a, mask"):
        given_inputs(values | {"mask": np.ones((3, 5))}, signature)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.zeros(3, 7), r"must have the shape \[3\]"),
        (torch.zeros(3), r"must hold numbers \[count, ...\]"),
        (torch.zeros(0, 3), r"must hold numbers \[count, ...\]"),
        (torch.full((2, 3), torch.nan), "inputs"),
        ([[1.0], [1.0, 2.0]], r"must be numbers \[count, ...\], a table or a path, got list"),
        (None, r"must hold numbers \[count, ...\]"),
        ({"size": ["1"]}, "got 'colour'"),
        ({"size": ["1"], "colour": []}, "one length"),
        ({"size": ["tall"], "colour": ["red"]}, "got 'tall' in row 1"),
        ({"size": [10**5000], "colour": ["red"]}, "got a number of 16610 bits in row 1"),
        ({"size": np.zeros((1, 2)), "colour": ["red"]}, r"got \[0.0, 0.0\] in row 1"),
        ({"size": 1, "colour": "red"}, "column 'size' must be a list of cells, got 1. For a single row"),
        ({"size": torch.ones(1, device="meta"), "colour": ["red"]}, "column 'size' must be a list of cells"),
        ({"size": [1, 2, 3], "colour": "red"}, "column 'colour' must be a list of cells, got 'red'"),
        (np.ma.masked_array(np.zeros((2, 3)), mask=True), "must have no masked entries"),
        (torch.zeros(2, 3, device="meta"), r"must be numbers \[count, ...\]"),
        (torch.zeros(2, 3).to_sparse(), r"must be numbers \[count, ...\]"),
        (
            torch.nested.nested_tensor([torch.zeros(2)], layout=torch.jagged),
            r"must be numbers \[count, ...\]",
        ),
        ({}, "must hold rows, got none"),
        ("nowhere.csv", "got no file"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, message, table):
    with pytest.raises(pl.InputError, match=message):
        given_inputs(inputs, table[1])


def test_columns_may_be_arrays_and_series_with_missing_cells(table):
    plain = given_inputs({"size": [1.0, None], "colour": ["red", "blue"]}, table[1])
    for size in (torch.tensor([1.0, torch.nan]), np.array([1.0, np.nan]), [1.0, pandas.NA]):
        raw = given_inputs({"size": size, "colour": pandas.Series(["red", "blue"])}, table[1])
        assert_close(raw.values, plain.values)
    masked = np.ma.masked_array([1.0, 5.0], mask=[False, True])
    assert_close(given_inputs({"size": masked, "colour": ["red", "blue"]}, table[1]).values, plain.values)


def test_tensors_that_are_views_of_other_numbers_are_read():
    signature, values = of_two_inputs(), torch.complex(torch.zeros(2, 3), torch.ones(2, 3)).conj().imag
    raw = given_inputs({"a": values, "mask": torch.ones(2, 5, dtype=torch.bool)}, signature)
    assert_close(raw.values["a"].double(), -torch.ones(2, 3).double())
