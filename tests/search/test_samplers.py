"""Samplers by name."""

import pytest
from optuna.samplers import GPSampler, RandomSampler

from pluribus.errors import SettingError
from pluribus.search.bandit import MethodBandit
from pluribus.search.improvement import ImprovementSampler
from pluribus.search.making import read_space
from pluribus.search.mobo import MOBOSampler
from pluribus.search.samplers import NAMES, Sampler


def test_every_name_makes_its_sampler():
    space = read_space({"single": {}, "deep_ensembles": {"members": [2, 3]}})
    classes = (ImprovementSampler, MethodBandit, GPSampler, MOBOSampler, RandomSampler)
    for name, kind in zip(NAMES, classes, strict=True):
        assert type(Sampler(name).make(40, space)) is kind


def test_gaussian_processes_need_a_flat_space():
    assert [name for name in NAMES if Sampler(name).is_flat] == ["gp", "mobo"]


def test_unknown_sampler_is_refused_with_the_nearest():
    with pytest.raises(SettingError, match="'tpe'"):
        Sampler("tpee")


def test_random_search_alone_begins_without_defaults():
    assert [name for name in NAMES if not Sampler(name).begins_with_defaults] == ["random"]
