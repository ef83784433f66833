"""Enumerated configurations come first."""

import pytest

from pluribus.errors import SettingError
from pluribus.methods import DeepEnsembles, MCDropout, Single
from pluribus.search import enumeration
from pluribus.search.enumeration import first_parameters
from pluribus.search.making import make_space, read_space


def test_methods_without_axes_and_enumerated_ones_come_first():
    space = read_space(
        {"single": {}, "deep_ensembles": {"members": [2, 3]}, "enumerated": ["deep_ensembles"]}
    )
    methods = [space.configuration(one).method for one in first_parameters(space)]
    assert methods == [Single(), DeepEnsembles(members=2), DeepEnsembles(members=3)]


def test_enumeration_needs_lists():
    space = make_space([MCDropout(), Single()], enumerated=["mc_dropout"])
    with pytest.raises(SettingError, match=r"mc_dropout\.rate"):
        first_parameters(space)


def test_too_many_configurations_are_refused(monkeypatch):
    monkeypatch.setattr(enumeration, "MOST_LISTED", 1)
    space = read_space({"deep_ensembles": {"members": [2, 3]}, "enumerated": ["deep_ensembles"]})
    with pytest.raises(SettingError, match="at most 1"):
        first_parameters(space)
