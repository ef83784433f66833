"""One record on the terminal: no word is broken at any width."""

import pytest

from pluribus.report.record_table import print_record, shown
from tests.report.test_record_groups import run


@pytest.mark.parametrize("width", [80, 140])
def test_table_breaks_no_word(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    print_record(run())
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= width
    assert "threshold_sensitivity" in printed
    assert "0.5 to 0.75" in printed
    for word in ("probability", "confidence", "multiply-adds", "distribution"):
        assert word in printed.lower()


def test_numbers_are_short():
    assert shown(0.123456) == "0.1235"
    assert shown(float("nan")) == "–"
