"""Columns: numbers of records, and their means over seeds."""

import math

import pytest

from pluribus.comparison.record import Record
from pluribus.report.columns import Cell, columns_of
from pluribus.report.groups import group_records
from pluribus.report.tables import make_table as table_of
from tests.report.records import classes


def one(kind: str, seed: int, accuracy: float, **changes) -> Record:
    values = {"metrics": {"accuracy": accuracy, "nll": 1 - accuracy}, **changes}
    return Record(f"{kind}{seed}", {"kind": kind, "version": 1}, "digits", "cnn", seed, {}, **values)


def make_table(records):
    (group,) = group_records(records)
    return table_of(group)


RECORDS = [one("single", 0, 0.8), one("single", 1, 0.9), one("mimo", 0, 0.95), one("mimo", 1, 0.85)]


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


def test_a_cell_without_a_number_is_a_dash():
    assert Cell(math.nan, math.nan).show(3) == "–"


def test_costs_are_ratios_where_they_are_known_and_numbers_where_not():
    ratios = make_table([one("single", 0, 0.9, cost={"parameters": 10, "parameters_ratio": 1.0})])
    assert [(c.title, c.is_cost) for c in ratios.columns[2:]] == [("params ×", True)]
    plain = make_table([one("single", 0, 0.9, cost={"parameters": 10})])
    assert plain.columns[2].title == "params"
    assert plain.rows["single"][2].show(0) == "10"


def test_a_single_network_without_mistakes_leaves_no_corruption_error():
    perfect = {"fog/1": {"accuracy": 1.0}}
    table = make_table([one("single", 0, 1.0, shifted=perfect), one("mimo", 0, 0.9, shifted=perfect)])
    assert "mCE" not in [column.title for column in table.columns]


def test_numbers_that_are_not_finite_are_left_out_of_means():
    table = make_table([*RECORDS, one("mimo", 2, math.inf), one("mimo", 3, math.nan)])
    assert table.rows["mimo"][0].mean == pytest.approx(0.9)
    shifted = {"fog/1": {"accuracy": math.nan}, "fog/2": {"accuracy": 0.4}, "fog/3": {}}
    table = make_table([one("single", 0, 0.9, shifted=shifted)])
    assert [column.title for column in table.columns] == ["Accuracy", "NLL", "shifted acc."]
    assert table.rows["single"][2].mean == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("rmse", "shown"), [(5.4321e-5, "0.00005432"), (1.23456, "1.235"), (54321.4, "54321")]
)
def test_numbers_in_units_of_the_data_show_four_figures(rmse, shown):
    table = make_table([one("single", 0, 0.9, metrics={"rmse": rmse})])
    assert table.rows["single"][0].show(table.columns[0].digits) == shown


def test_corruption_error_is_relative_to_the_same_seed():
    runs = [one("single", s, 0.9, shifted={"fog/1": {"accuracy": a}}) for s, a in enumerate((0.6, 0.8))]
    table = make_table(runs)
    column = next(i for i, one in enumerate(table.columns) if one.title == "mCE")
    assert (table.rows["single"][column].mean, table.rows["single"][column].error) == pytest.approx(
        (1.0, 0.0)
    )


def test_any_number_is_better_than_none():
    column = make_table(RECORDS).columns[0]
    assert column.better(0.2, 0.1)
    assert column.better(0.1, math.nan)
    assert not column.better(math.nan, 0.1)
    assert not column.better(math.nan, math.nan)


def test_raw_and_calibrated_scores_stand_side_by_side():
    parts = {
        "posthoc": {"scaled_nll": 0.15, "scaled_ece": 0.01},
        "shifted": {"fog/1": {"nll": 1.0, "scaled_nll": 0.8}, "fog/2": {"nll": 2.0, "scaled_nll": 1.0}},
        "ood": {"night": {"auroc_chosen": 0.9, "auroc_entropy": 0.6}},
    }
    table = make_table([one("single", 0, 0.8, **parts)])
    titles = [column.title for column in table.columns]
    found = dict(zip(titles, [cell.mean for cell in table.rows["single"]], strict=True))
    assert titles[1:3] == ["NLL", "NLL calibrated"]
    assert found["NLL calibrated"] == 0.15
    assert found["shifted NLL"] == 1.5
    assert found["shifted NLL calibrated"] == pytest.approx(0.9)
    assert found["OOD AUROC"] == 0.9
    assert found["OOD AUROC, entropy"] == 0.6


def test_records_without_a_chosen_score_are_read_by_entropy():
    table = make_table([one("single", 0, 0.8, ood={"night": {"auroc_entropy": 0.6}})])
    assert [column.title for column in table.columns][-1] == "OOD AUROC"
    assert table.rows["single"][-1].mean == 0.6


@pytest.mark.parametrize(("names", "yes"), [(["benign", "malignant"], "malignant"), ([], "1")])
def test_rates_name_the_class_to_be_found(names, yes):
    made = classes(posthoc={"threshold": 0.3, "threshold_sensitivity": 0.9}, class_names=names)
    (group,) = group_records([made])
    (column,) = (one for one in columns_of(group) if one.name == "threshold_sensitivity")
    assert f"samples of class {yes} that are found. Class {yes} is answered" in column.explanation
