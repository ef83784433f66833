"""Presenting: `compare` in Python prints the table and writes the page, as the command does."""

from pluribus.comparison import record
from pluribus.metrics.costs import Costs
from pluribus.report.presenting import present
from tests.report.records import classes, failed


def stored(folder, *runs):
    for run in runs:
        record.append(folder, run)
    return [run.key for run in runs]


def test_table_offers_and_page_are_presented(tmp_path, capsys):
    keys = stored(tmp_path, classes(), classes("deep_ensembles", skill=4.0), classes("mimo"))
    page = present(tmp_path, keys[:2], "parameters<=9x", "accuracy")
    printed = capsys.readouterr().out
    assert "Best for each budget" in printed
    assert "Take deep_ensembles" in printed
    assert "mimo" not in printed
    assert f"report:  {page}" in printed
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_costs_are_counted_anew(tmp_path):
    page = present(tmp_path, stored(tmp_path, classes()), costs=Costs(wrong=2, defer=0.3))
    assert "(wrong 2, defer 0.3)" in page.read_text(encoding="utf-8")


def test_no_page_is_written_where_all_runs_failed(tmp_path, capsys):
    assert present(tmp_path, stored(tmp_path, failed())) is None
    assert "failed: mimo seed 0" in capsys.readouterr().out
    assert not (tmp_path / "report.html").exists()
