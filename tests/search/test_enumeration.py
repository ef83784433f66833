"""Enumerated configurations come first."""

from collections import Counter
from dataclasses import replace

import pytest

from pluribus.axes import OneOf
from pluribus.errors import SettingError
from pluribus.methods import SAE, BatchEnsemble, DeepEnsembles, EarlyExit, MCDropout, Single
from pluribus.search import enumeration
from pluribus.search.enumeration import default_parameters, finished_methods, first_parameters
from pluribus.search.making import make_space, read_space


def test_methods_without_axes_and_enumerated_ones_come_first():
    space = read_space(
        {"single": {}, "deep_ensembles": {"members": [2, 3]}, "enumerated": ["deep_ensembles"]}
    )
    methods = [space.configuration(one).method for one in first_parameters(space)]
    assert methods == [Single(), DeepEnsembles(members=2), DeepEnsembles(members=3)]


def test_enumeration_needs_lists():
    space = read_space({"single": {}, "mc_dropout": {"rate": {"low": 0.1, "high": 0.5}}})
    space = replace(space, enumerated=("mc_dropout",))
    with pytest.raises(SettingError, match=r"mc_dropout\.rate"):
        first_parameters(space)


def test_too_many_configurations_are_refused(monkeypatch):
    monkeypatch.setattr(enumeration, "MOST_LISTED", 1)
    space = read_space({"deep_ensembles": {"members": [2, 3]}, "enumerated": ["deep_ensembles"]})
    with pytest.raises(SettingError, match="at most 1"):
        first_parameters(space)


def test_method_without_axes_leaves_trials_to_the_others():
    sizes = {"width": OneOf((8, 16, 32)), "depth": OneOf((1, 2, 4))}
    space = make_space([Single(), DeepEnsembles()], sizes=sizes)
    assert len(first_parameters(space)) == 9
    assert first_parameters(space, most=8) == [{"method": "single"}]
    named = replace(space, enumerated=("single",))
    assert len(first_parameters(named, most=8)) == 9


def test_space_of_the_paper_enumerates_its_baselines():
    methods = [SAE(), MCDropout(draws=4), Single(), DeepEnsembles(), BatchEnsemble(), EarlyExit()]
    listed = ["deep_ensembles", "batch_ensemble", "early_exit"]
    space = make_space(methods, enumerated=listed, sizes={"width": OneOf((8, 16))}, depths=3)
    kinds = Counter(space.configuration(one).method.kind() for one in first_parameters(space))
    # Two widths of the single network, of 2 to 8 members, and of 2 to 3 exits.
    assert kinds == {"single": 2, "deep_ensembles": 14, "batch_ensemble": 14, "early_exit": 4}
    assert "mc_dropout.rate" in space.parameters(flat=False)


@pytest.mark.parametrize("flat", [False, True])
def test_defaults_are_the_methods_own_settings(flat):
    methods = [Single(), SAE(), DeepEnsembles(), MCDropout(draws=4)]
    space = make_space(methods, depths=3)
    found = default_parameters(space, flat)
    names = space.parameters(flat)
    assert [one["method"] for one in found] == ["sae", "deep_ensembles", "mc_dropout"]
    for drawn, method in zip(found, methods[1:], strict=True):
        assert drawn.keys() <= names.keys()
        # Settings of other methods are the sampler's in a flat space.
        others = dict.fromkeys(names)
        assert space.configuration(others | drawn, flat).method == method


def test_a_default_outside_of_the_space_is_left_to_the_sampler():
    space = read_space({"deep_ensembles": {"members": [2, 3]}, "mc_dropout": {"rate": [0.1, 0.2]}})
    assert default_parameters(space) == [
        {"method": "deep_ensembles"},
        {"method": "mc_dropout", "mc_dropout.rate": 0.1},
    ]


def test_methods_that_are_all_tried_first_are_finished():
    space = make_space([Single(), DeepEnsembles(), MCDropout()], enumerated=["deep_ensembles"])
    assert finished_methods(space) == ["single", "deep_ensembles"]
    assert finished_methods(replace(space, sizes={"width": OneOf((8, 16))})) == []
