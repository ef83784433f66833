"""Warm start: ensembles of a comparison are trials, measured on validation data."""

import pytest

from pluribus.comparison import compare, record
from pluribus.comparison.record import Record
from pluribus.methods import DeepEnsembles, Single
from pluribus.training import Training
from tests.search.cases import moons, network, small_search, untrained


@pytest.mark.slow
def test_runs_of_a_comparison_are_not_trained_again(tmp_path):
    options = {"seeds": 1, "training": Training(steps=2), "shifted": False, "show": False, "recipes": False}
    methods = [Single(), DeepEnsembles(members=2), DeepEnsembles(members=7)]
    compare(network, moons(), methods, out=tmp_path / "compare", **options)
    study = small_search(tmp_path / "search", trials=3, warm_start=[tmp_path / "compare"])
    labels = [trial.label for trial in study.complete]
    # Seven members are not in the space.
    assert labels[:2] == ["single", "deep_ensembles(members=2)"]
    assert sorted(labels[2:]) == ["deep_ensembles(members=3)"]
    assert len(study.complete) == 3
    again = small_search(tmp_path / "search", trials=3, warm_start=[tmp_path / "compare"])
    assert len(again.complete) == 3


def test_runs_of_other_spaces_and_data_are_left_out(tmp_path, monkeypatch):
    untrained(monkeypatch)
    stranger = Record("k", DeepEnsembles(members=2).to_dict(), "t", "network", 0, {})
    record.append(tmp_path / "compare", stranger)
    (tmp_path / "compare" / "runs" / "deep_ensembles-0-k" / "ensemble").mkdir(parents=True)
    study = small_search(tmp_path / "search", trials=1, warm_start=[tmp_path / "compare"])
    assert [trial.label for trial in study.complete] == ["single"]
