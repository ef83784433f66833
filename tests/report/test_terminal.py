"""The table on terminals: methods as rows, whole words, as many columns as fit, and what is left out."""

import re
from dataclasses import replace

import pytest

from pluribus.comparison.record import Record
from pluribus.report.groups import group_records
from pluribus.report.price_list import make_price_list
from pluribus.report.tables import make_table as table_of
from pluribus.report.terminal import price_cells, print_prices, print_table, wrap_head, wrap_label
from tests.report.records import classes


def one(kind: str, seed: int, accuracy: float, **changes) -> Record:
    values = {"metrics": {"accuracy": accuracy, "nll": 1 - accuracy}, **changes}
    return Record(f"{kind}{seed}", {"kind": kind, "version": 1}, "digits", "cnn", seed, {}, **values)


def make_table(records):
    (group,) = group_records(records)
    return table_of(group)


def printed_at(width, capsys, monkeypatch, table, metric=None):
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(table, "a title", metric)
    return capsys.readouterr().out


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


@pytest.fixture
def full():
    """A table with every column of a classification."""
    runs = [classes(), classes("deep_ensembles", skill=3.0), classes("packed_ensembles", skill=2.0)]
    return make_table(runs)


def test_eighty_columns_show_quality_and_cost_in_whole_words(full, capsys, monkeypatch):
    printed = printed_at(80, capsys, monkeypatch, full)
    words = set(re.findall(r"[\w-]+", printed))
    assert {"Accuracy", "NLL", "mult-adds", "packed_ensembles", "deep_ensembles"} <= words
    assert max(map(len, printed.splitlines())) <= 80
    titles = {word for column in full.columns for word in re.findall(r"[\w-]+", column.title)}
    assert titles <= words


def test_names_are_cut_where_their_settings_begin_if_the_first_has_no_room_beside():
    label = "layer_ensembles(options=3, draws=8, start=copy)"
    assert wrap_label(label, 32) == "layer_ensembles(options=3,\n  draws=8,\n  start=copy)"
    assert wrap_label(label, 20) == "layer_ensembles(\n  options=3,\n  draws=8,\n  start=copy)"


def test_a_wide_terminal_shows_every_column(full, capsys, monkeypatch):
    assert "no room" not in printed_at(140, capsys, monkeypatch, full)


def test_a_narrow_terminal_keeps_the_chosen_metric_and_names_the_rest(full, capsys, monkeypatch):
    printed = printed_at(40, capsys, monkeypatch, full, metric="ece")
    table, _, hidden = printed.partition("no room for ")
    assert "ECE ↓" in table
    assert "Accuracy ↑" in table
    assert "mult-adds" in " ".join(hidden.split())


def test_failures_are_printed_below(capsys):
    failed = Record("x", {"kind": "mimo", "version": 1}, "digits", "cnn", 2, {}, error="ValueError: no")
    print_table(make_table([one("single", 0, 0.8), one("single", 1, 0.9), failed]), "a title")
    printed = capsys.readouterr().out
    assert "failed: mimo seed 2: ValueError: no" in printed
    assert "0.850" in printed
    assert "±0.050" in printed


def test_a_table_of_failures_alone_is_printed(capsys):
    failed = Record("x", {"kind": "mimo", "version": 1}, "digits", "cnn", 2, {}, error="ValueError: no")
    print_table(make_table([failed]), "a title")
    assert "failed: mimo seed 2: ValueError: no" in capsys.readouterr().out


def test_labels_are_cut_between_settings():
    assert wrap_label("single", 4) == "single"
    assert wrap_label("emp(options=4, where=norm)", 40) == "emp(options=4, where=norm)"
    assert wrap_label("emp(options=4, where=norm)", 20) == "emp(options=4,\n  where=norm)"
    assert wrap_label("deep_sub_ensembles(members=3)", 24) == "deep_sub_ensembles(\n  members=3)"
    assert wrap_label("layer_ensembles(a=1, b=2)", 18) == "layer_ensembles(\n  a=1, b=2)"


def test_heads_are_cut_between_words():
    assert wrap_head("shifted acc.", "↑", 7) == "shifted\nacc. ↑"
    assert wrap_head("NLL", "↓", 7) == "NLL ↓"
    assert wrap_head("OOD AUROC", "↑", 20) == "OOD AUROC ↑"


def test_eighty_columns_show_raw_and_calibrated_scores_shift_strangers_and_cost(capsys, monkeypatch):
    runs = []
    for kind in ("single", "deep_ensembles"):
        run = classes(kind)
        run.posthoc["scaled_nll"] = 0.5
        for section in run.shifted.values():
            section["scaled_nll"] = 0.7
        run.ood["noise"]["auroc_chosen"] = 0.9
        runs.append(run)
    printed = printed_at(80, capsys, monkeypatch, make_table(runs))
    head = set(printed.split("single")[0].split())
    assert {"Accuracy", "NLL", "calibrated", "shifted", "OOD", "mult-adds"} <= head


def priced(name):
    """Return the best configuration for each budget, where a name has settings."""
    records = [classes(), classes("deep_ensembles", skill=3.0)]
    (group,) = group_records(records)
    entries = tuple(
        replace(entry, label=name if "deep" in entry.label else entry.label) for entry in group.entries
    )
    return make_price_list(replace(group, entries=entries))


@pytest.mark.parametrize("width", [80, 140])
def test_prices_name_configurations_without_cutting_a_setting(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    print_prices(priced("deep_ensembles(members=3)"))
    printed = capsys.readouterr().out
    assert "deep_ensembles(members=3)" in printed
    assert max(map(len, printed.splitlines())) <= width


def test_prices_fold_verdicts_on_narrow_terminals_alone():
    prices = priced("deep_ensembles(members=3)")
    _, heads, _ = price_cells(prices, 140)
    assert heads[-1] == "against single"
    labels, heads, _ = price_cells(prices, 80)
    assert heads[-1] == "against\nsingle"
    assert "deep_ensembles(members=3)" in labels
    # Where there is even less room, a name is cut where its settings begin.
    assert "deep_ensembles(\n  members=3)" in price_cells(prices, 66)[0]
