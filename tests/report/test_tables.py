"""The table of a comparison: means, errors, the best, and what failed."""

import math

import pytest

from pluribus.record import Record
from pluribus.report.groups import group_records
from pluribus.report.tables import Cell, print_table
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


def test_one_seed_has_no_standard_error():
    cell = make_table(RECORDS[:1]).rows["single"][0]
    assert math.isnan(cell.error)
    assert cell.show(3) == "0.800"


def test_corruption_error_is_relative_to_the_single_network():
    shifted = {"fog/1": {"accuracy": 0.6}, "fog/2": {"accuracy": 0.4}}
    better = {"fog/1": {"accuracy": 0.8}, "fog/2": {"accuracy": 0.7}}
    table = make_table([one("single", 0, 0.9, shifted=shifted), one("mimo", 0, 0.9, shifted=better)])
    column = next(i for i, one in enumerate(table.columns) if one.title == "mCE")
    assert table.rows["single"][column].mean == pytest.approx(1.0)
    assert table.rows["mimo"][column].mean == pytest.approx(0.5)


def test_failed_runs_are_named_and_leave_the_rest_alone(capsys):
    failed = Record("x", {"kind": "mimo", "version": 1}, "digits", "cnn", 2, {}, error="ValueError: no")
    table = make_table([*RECORDS, failed])
    assert table.rows == make_table(RECORDS).rows
    print_table(table, "a title")
    printed = capsys.readouterr().out
    assert "mimo seed 2: ValueError: no" in printed
    assert "0.900" in printed
    assert "±0.050" in printed


def test_a_cell_without_a_number_is_a_dash():
    assert Cell(math.nan, math.nan).show(3) == "–"


def test_costs_are_ratios_where_they_are_known_and_numbers_where_not():
    ratios = make_table([one("single", 0, 0.9, cost={"parameters": 10, "parameters_ratio": 1.0})])
    assert [(c.title, c.is_cost) for c in ratios.columns[2:]] == [("params ×", True)]
    plain = make_table([one("single", 0, 0.9, cost={"parameters": 10})])
    assert plain.columns[2].title == "params"
    assert plain.rows["single"][2].show(0) == "10"
