"""The table of a comparison: means, errors, the best, and what failed."""

import pytest

from pluribus.comparison.record import Record
from pluribus.report.groups import group_records
from pluribus.report.tables import make_table as table_of


def one(kind: str, seed: int, accuracy: float, **changes) -> Record:
    values = {"metrics": {"accuracy": accuracy, "nll": 1 - accuracy}, **changes}
    return Record(f"{kind}{seed}", {"kind": kind, "version": 1}, "digits", "cnn", seed, {}, **values)


def make_table(records):
    (group,) = group_records(records)
    return table_of(group)


RECORDS = [one("single", 0, 0.8), one("single", 1, 0.9), one("mimo", 0, 0.95), one("mimo", 1, 0.85)]


def test_cells_are_means_with_standard_errors():
    table = make_table(RECORDS)
    accuracy = table.rows["mimo"][0]
    assert accuracy.mean == pytest.approx(0.9)
    assert accuracy.error == pytest.approx(0.05)
    assert (table.columns[0].title, table.columns[1].title) == ("Accuracy", "NLL")


def test_the_best_of_each_column_follows_its_direction():
    table = make_table(RECORDS)
    assert [cell.best for cell in table.rows["mimo"]] == [True, True]
    assert [cell.best for cell in table.rows["single"]] == [False, False]


def test_failed_runs_are_named_and_leave_the_rest_alone():
    failed = Record("x", {"kind": "mimo", "version": 1}, "digits", "cnn", 2, {}, error="ValueError: no")
    table = make_table([*RECORDS, failed])
    assert table.rows == make_table(RECORDS).rows
    assert table.failures == ("mimo seed 2: ValueError: no",)
