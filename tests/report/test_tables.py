"""The table of a comparison: means, errors, the best, and what failed."""

import pytest

from pluribus.comparison.record import Record
from pluribus.report.groups import group_records
from pluribus.report.tables import make_table as table_of
from pluribus.report.tables import print_table


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


def test_failed_runs_are_named_and_leave_the_rest_alone(capsys):
    failed = Record("x", {"kind": "mimo", "version": 1}, "digits", "cnn", 2, {}, error="ValueError: no")
    table = make_table([*RECORDS, failed])
    assert table.rows == make_table(RECORDS).rows
    print_table(table, "a title")
    printed = capsys.readouterr().out
    assert "mimo seed 2: ValueError: no" in printed
    assert "0.900" in printed
    assert "±0.050" in printed


@pytest.mark.parametrize("width", [20, 80, 119, 200])
def test_every_method_is_printed_on_any_terminal(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    means = [0.101 + 0.01 * place for place in range(15)]
    print_table(make_table([one(f"method_{place}", 0, mean) for place, mean in enumerate(means)]), "a title")
    printed = capsys.readouterr().out
    assert [f"{mean:.3f}" for mean in means if f"{mean:.3f}" not in printed] == []
    assert max(map(len, printed.splitlines())) <= width
    assert printed.count("a title") == 1


def test_names_are_printed_as_they_are(capsys):
    odd = Record("x", {"kind": "[/bold]", "version": 1}, "digits", "[red]", 0, {}, metrics={"nll": 1.0})
    print_table(make_table([odd]), "a [/title]")
    printed = capsys.readouterr().out
    assert "[/bold]" in printed
    assert "a [/title]" in printed
