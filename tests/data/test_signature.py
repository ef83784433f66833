"""Signatures: prediction without the task's data, from a file that is not trusted."""

import json

import pytest
import torch
from torch.testing import assert_close

from pluribus.data import Scaling, Signature, Split, Task, load_task
from pluribus.data.signature import FILE
from pluribus.errors import CheckpointError
from pluribus.likelihood import Categorical, Gaussian


def table(folder):
    lines = ["size,colour,price", *(f"{i % 7},{'red' if i % 2 else 'blue'},{i % 5}" for i in range(40))]
    (folder / "t.csv").write_text("\n".join(lines))
    return load_task("csv", path=folder / "t.csv", target="price")


def images():
    raw = torch.rand(12, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    scaling = Scaling.of_channels(raw)
    split = Split(scaling.apply(raw), torch.arange(12) % 3)
    return Task("t", split, split, split, classes=3, class_names=("a", "b", "c"), scaling=scaling)


@pytest.mark.parametrize("kind", ["table", "images"])
def test_saved_signature_is_the_same(tmp_path, kind):
    task = table(tmp_path) if kind == "table" else images()
    Signature.of(task, ";").save(tmp_path)
    found = Signature.load(tmp_path)
    assert (found.input_shape, found.outputs, found.delimiter) == (task.input_shape, task.outputs, ";")
    assert (found.classes, found.class_names, found.columns) == (task.classes, task.class_names, task.columns)
    raw = torch.rand(5, *task.input_shape).double()
    assert_close(found.prepare(raw), task.prepare(raw), rtol=0, atol=0)
    assert_close(found.low, Signature.of(task).low)
    assert found.example().args[0].shape == (2, *task.input_shape)
    assert not found.has_several_inputs


def test_predictions_are_told_as_the_task_tells_them(tmp_path):
    task = table(tmp_path)
    Signature.of(task).save(tmp_path)
    prediction = Gaussian().prediction(torch.randn(2, 5, 2))
    assert Signature.load(tmp_path).table(prediction) == task.table(prediction)
    prediction = Categorical().prediction(torch.randn(2, 5, 3))
    assert Signature.of(images()).table(prediction) == images().table(prediction)


def test_no_sample_of_the_data_is_in_the_file(tmp_path):
    task = table(tmp_path)
    Signature.of(task).save(tmp_path)
    example = Signature.load(tmp_path).example().args[0]
    assert not (example[:, None] == task.train.x[None]).all(-1).any()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", 3),
        ("inputs", [{"key": "x", "shape": [10**18], "dtype": "float32"}]),
        ("inputs", [{"key": "x", "shape": [3], "dtype": "object"}]),
        ("input_shape", []),
        ("input_shape", [10**18]),
        ("input_shape", [0]),
        ("outputs", True),
        ("classes", 5),
        ("class_names", ["a"]),
        ("feature_names", ["a"]),
        ("low", [0.0]),
        ("high", [float("inf")] * 3),
        ("scaling", {"shape": [3], "mean": [0, 0, 0], "std": [1, 1, 0]}),
        ("scaling", {"shape": [3], "mean": [0, 0], "std": [1, 1]}),
        ("scaling", {"shape": [2], "mean": [0, 0], "std": [1, 1]}),
        ("columns", None),
        ("columns", {"version": 1, "missing_words": [], "columns": []}),
        ("more", 1),
    ],
)
def test_damaged_signatures_are_refused(tmp_path, name, value):
    Signature.of(table(tmp_path)).save(tmp_path)
    values = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps(values | {name: value}))
    if (name, value) == ("columns", None):
        assert Signature.load(tmp_path).columns is None  # a table of plain numbers
        return
    if (name, value) == ("classes", 5):
        assert Signature.load(tmp_path).classes == 5  # without names
        return
    with pytest.raises(CheckpointError):
        Signature.load(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{", "[" * 10000, '{"version": 1}', "\udc80"])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / FILE).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=r"signature.json"):
        Signature.load(tmp_path)


@pytest.mark.parametrize(
    ("shape", "names", "expected"),
    [
        ((2,), ("a", "b"), "inputs.csv"),
        ((2,), (), "inputs.npy"),
        ((1, 8, 8), (), "pictures/"),
        ((3, 8, 8), (), "pictures/"),
        ((12, 8, 8), (), "inputs.npy"),
    ],
)
def test_example_file_suits_the_inputs(shape, names, expected):
    split = Split(torch.zeros(4, *shape), torch.tensor([0, 1, 0, 1]))
    task = Task("mine", split, split, split, classes=2, feature_names=names)
    assert Signature.of(task).example_file == expected
