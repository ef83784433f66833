"""Figure files: all are written, or none with a remedy."""

import pytest
from pytest import raises

from pluribus.errors import SettingError
from pluribus.report import figure_files as module
from pluribus.report.figure_files import check_figures, write_figures
from pluribus.report.groups import group_records
from tests.report.records import classes, numbers

RUNS = [classes(kind, seed, skill) for kind, skill in (("single", 1), ("mc_dropout", 3)) for seed in range(3)]


def test_without_kaleido_figures_are_refused_with_one_remedy_before_anything_is_written(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    wanted = r"must be installed to save figures, got none\. Install pluribus with the extra figures\.$"
    for attempt in (check_figures, lambda: write_figures(tmp_path / "figures", group_records(RUNS))):
        with raises(SettingError, match=wanted):
            attempt()
    assert list(tmp_path.iterdir()) == []


def test_without_a_browser_figures_are_refused(monkeypatch):
    chromium = pytest.importorskip("choreographer.browsers.chromium")
    monkeypatch.setattr(chromium.Chromium, "find_browser", lambda **_: None)
    with raises(SettingError, match=r"got neither\. Install one\.$"):
        check_figures()


def test_a_drawing_that_fails_leaves_no_folder(monkeypatch, tmp_path):
    def fail(file, **_):
        file[0].write_text("half a picture")
        raise RuntimeError("the browser went away")

    monkeypatch.setattr(module, "check_figures", lambda: None)
    monkeypatch.setattr(module, "write_images", fail)
    with raises(SettingError, match=r"got RuntimeError\('the browser went away'\)"):
        write_figures(tmp_path / "figures", group_records([numbers()]))
    assert list(tmp_path.iterdir()) == []
