"""Preprocessing: rows become inputs as in training, and everything else is refused with its reason."""

import json

import numpy as np
import pytest

from pluribus.errors import CheckpointError
from pluribus.serving.exported import Exported
from pluribus.serving.preprocessing import Preprocessing, Scale
from pluribus.serving.refusal import Refusal
from tests.serving.files import class_file, number_file, table_columns, table_file, token_file


@pytest.fixture
def table(tmp_path):
    return Preprocessing(Exported(table_file(tmp_path / "m.onnx"), 1))


def test_cells_become_the_numbers_of_training(table):
    arrays, notes = table.prepare([{"age": 50, "pet": "b"}, {"age": None, "pet": "c", "more": 1}])
    columns = table_columns()
    encoded = columns.encode({"age": [50, None], "pet": ["b", "c"]})
    np.testing.assert_allclose(arrays["x"], columns.scale(encoded.values), rtol=1e-6)
    assert arrays["x"].dtype == np.float32
    assert notes == ("", "unseen pet=c")


def test_numbers_with_names_are_scaled(tmp_path):
    preprocessing = Preprocessing(Exported(number_file(tmp_path / "m.onnx"), 1))
    for rows in ([{"a": 5, "b": 10}], [[5, 10]]):
        arrays, _ = preprocessing.prepare(rows)
        np.testing.assert_allclose(arrays["x"], [[2, 2]])
    with pytest.raises(Refusal, match="column 'a' must have a number in each row, got null"):
        preprocessing.prepare([{"a": None, "b": 1}])


def test_whole_numbers_are_scaled_as_others():
    scale = Scale(np.array([0.5, 1.5]), np.array([0.25, 2.5]))
    for values in ([[1, 2]], [[True, False]]):
        # In their own type, a deviation of 0.25 would be 0, and one of 2.5 would be 2.
        np.testing.assert_allclose(scale.apply(np.array(values)), scale.apply(np.array(values, np.float64)))


def test_bytes_are_shares_of_255(tmp_path):
    scale = Scale(np.array(0.5), np.array(0.25))
    np.testing.assert_allclose(scale.apply(np.array([[255, 0]], np.uint8)), [[2, -2]])
    preprocessing = Preprocessing(Exported(number_file(tmp_path / "m.onnx"), 1))
    with pytest.raises(Refusal, match="bytes must be whole numbers from 0 to 255, got -1 to 3"):
        preprocessing.prepare([[-1, 3]], "uint8")


def test_a_file_without_preprocessing_takes_rows_as_they_are(tmp_path):
    preprocessing = Preprocessing(Exported(class_file(tmp_path / "m.onnx"), 1))
    assert preprocessing.prepare([[1, 2, 3, 4]])[0]["x"].tolist() == [[1, 2, 3, 4]]
    assert preprocessing.prepare([{"x": [1, 2, 3, 4]}])[0]["x"].tolist() == [[1, 2, 3, 4]]


def test_several_inputs_come_by_name(tmp_path):
    preprocessing = Preprocessing(Exported(token_file(tmp_path / "m.onnx"), 1))
    arrays, _ = preprocessing.prepare([{"tokens": [1, 2], "mask": [1, 0.5]}])
    assert arrays["tokens"].dtype == np.int64
    assert arrays["mask"].tolist() == [[1, 0.5]]
    for rows, message in [
        ([[1, 2]], "a row must be an object with tokens, mask"),
        ([{"tokens": [1]}], "row 1 must have 'mask'"),
        ([{"tokens": [0.5], "mask": [1]}], "tokens must hold whole numbers"),
        ([{"tokens": [], "mask": [1]}], r"tokens must have the shape \['batch', 'length'\], got \[1, 0\]"),
        ([{"tokens": [10**30], "mask": [1]}], "tokens must hold numbers alone"),
    ]:
        with pytest.raises(Refusal, match=message):
            preprocessing.prepare(rows)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "at least one row"),
        ("text", "rows must be a list"),
        ([[1, 2, 3]], r"x must have the shape \['batch', 4\], got \[1, 3\]"),
        ([[1, 2], [1]], "ragged"),
        ([[1, 2, 3, "a"]], "numbers alone"),
        ([[1, 2, 3, None]], "numbers alone"),
        ([[1, 2, 3, float("nan")]], "x must be finite"),
        ([[1, 2, 3, 1e300]], "numbers that float32 can hold"),
        ([{"age": 1}], "row 1 must have 'pet'"),
        ([{"age": [1], "pet": "a"}], "a cell must be a text"),
        ([{"age": float("inf"), "pet": "a"}], "column 'age' must be finite"),
        ([{"age": "old", "pet": "a"}], "column 'age' must hold finite numbers, got 'old' in row 1"),
    ],
)
def test_wrong_rows_are_refused_with_a_reason(rows, message, table):
    with pytest.raises(Refusal, match=message):
        table.prepare(rows)


def test_an_unknown_dtype_is_refused(table):
    with pytest.raises(Refusal, match='dtype must be "uint8"'):
        table.prepare([[1, 2, 3, 4]], "int3")


@pytest.mark.parametrize(
    "changes",
    [
        {"scaling": {"shape": [3], "mean": [0.0] * 3, "std": [1.0] * 3}},
        {"scaling": {"shape": [4], "mean": [0.0] * 4, "std": [0.0] * 4}},
        {"scaling": "none"},
        {"feature_names": ["one"], "columns": None},
    ],
)
def test_a_record_that_does_not_fit_is_refused(changes, tmp_path):
    path = table_file(tmp_path / "m.onnx")
    beside = tmp_path / "m.onnx.json"
    document = json.loads(beside.read_text())
    document["preprocessing"] |= changes
    beside.write_text(json.dumps(document))
    exported = Exported(path, 1)
    with pytest.raises(CheckpointError):
        Preprocessing(exported)
