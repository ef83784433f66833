"""Tables to predict for: rows with their ids."""

import numpy as np

from pluribus.data import csv_file
from pluribus.data.raw_tables import table_inputs
from pluribus.data.signature import Signature


def written(folder):
    path = folder / "t.csv"
    rows = np.random.default_rng(0).normal(size=(60, 2))
    lines = [f"{900 + row},{a},{b},{'yes' if a > 0 else 'no'}" for row, (a, b) in enumerate(rows)]
    path.write_text("\n".join(["patient_id,a,b,ill", *lines]) + "\n")
    return path


def test_ids_are_those_of_the_column_that_training_left_out(tmp_path):
    path = written(tmp_path)
    task = csv_file(path, target="ill")
    parts = list(table_inputs(path, Signature.of(task), rows=25))
    assert [len(part.values) for part in parts] == [25, 25, 10]
    assert [one for part in parts for one in part.ids] == [str(900 + row) for row in range(60)]


def test_rows_without_ids_are_called_by_their_lines(tmp_path):
    path = written(tmp_path)
    signature = Signature.of(csv_file(path, target="ill"))
    bare = tmp_path / "bare.csv"
    bare.write_text("a,b\n1,2\n3,4\n")
    assert next(table_inputs(bare, signature, rows=8)).ids == (2, 3)
