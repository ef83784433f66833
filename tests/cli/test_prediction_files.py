"""Files of predictions: chunks in, one file out, complete or not at all."""

import csv

import numpy as np
import pytest

from pluribus.cli.prediction_files import prediction_file
from pluribus.errors import SettingError

CHUNKS = (
    {"id": ("a", "=b"), "labels": ["cat", "dog"], "p": [0.25, 0.5], "entropy": [1, 2]},
    {"id": ("c",), "labels": ["cat"], "p": [1.0], "entropy": [3]},
)


def written(path):
    with prediction_file(path) as file:
        for chunk in CHUNKS:
            file.write(chunk)
    return path


def test_csv_has_a_row_for_each_prediction(tmp_path):
    with written(tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["a", "'=b", "c"]
    assert [float(row["p"]) for row in rows] == [0.25, 0.5, 1.0]


def test_parquet_has_the_same_columns(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    found = parquet.read_table(written(tmp_path / "p.parquet")).to_pydict()
    assert found == {
        "id": ["a", "=b", "c"],
        "labels": ["cat", "dog", "cat"],
        "p": [0.25, 0.5, 1.0],
        "entropy": [1, 2, 3],
    }


def test_archives_hold_arrays(tmp_path):
    with np.load(written(tmp_path / "p.npz"), allow_pickle=False) as found:
        assert found["labels"].tolist() == ["cat", "dog", "cat"]
        assert found["p"].dtype == np.float64
        assert found["entropy"].tolist() == [1, 2, 3]
    with prediction_file(tmp_path / "maps.npz") as file:
        for _ in range(3):
            file.write({"labels": np.ones((2, 4, 5), np.int64)})
    with np.load(tmp_path / "maps.npz") as found:
        assert found["labels"].shape == (6, 4, 5)


def test_a_failure_leaves_the_earlier_file(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("before")
    with pytest.raises(ValueError, match="zip"), prediction_file(path) as file:
        file.write({"a": [1], "b": [1, 2]})
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["p.csv"]


@pytest.mark.parametrize(
    ("name", "message"), [("p.txt", "must end with one of .csv"), ("folder.csv", "must be a file that can")]
)
def test_what_cannot_be_written_is_refused(tmp_path, name, message):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(SettingError, match=f"--out {message}"), prediction_file(tmp_path / name) as file:
        file.write(CHUNKS[0])
