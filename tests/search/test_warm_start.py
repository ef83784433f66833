"""Warm start: ensembles of a comparison are trials, measured on validation data."""

from pluribus.comparison import compare
from pluribus.methods import DeepEnsembles, Single
from pluribus.training import Training
from tests.search.cases import moons, network, small_search


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
