"""Making a space: what methods declare, and dicts written by hand."""

import random

import pytest

from pluribus.axes import Between
from pluribus.errors import SettingError
from pluribus.methods import SAE, EarlyExit, MCDropout, Single
from pluribus.search.making import make_space, read_space
from pluribus.search.worker import draw_evenly


def evenly(seed=0):
    generator = random.Random(seed)
    return lambda name, axis: draw_evenly(axis, generator)


def test_sae_varies_as_in_its_paper():
    space = make_space([SAE()], depths=5)
    found = space.parameters(flat=False)
    assert found["sae.inputs"] == Between(1, 4)
    assert found["sae.exits"] == Between(1, 5)
    for name in ("alpha", "temperature", "input_repetition"):
        for end in ("start", "end"):
            assert found[f"sae.{name}.{end}"].high == 1.0


def test_settings_that_are_given_stay_as_they_are():
    space = make_space([MCDropout(draws=4)])
    assert list(space.parameters(flat=False)) == ["mc_dropout.rate"]
    assert space.suggest(evenly()).method.draws == 4


def test_method_that_needs_exits_is_left_out_with_the_reason():
    space = make_space([Single(), EarlyExit()], depths=None)
    assert space.kinds == ("single",)
    assert "early_exit" in str(space)
    with pytest.raises(SettingError, match="stages"):
        make_space([EarlyExit()], depths=None)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"deep": {}},
        {"deep_ensembles": {"member": [1]}},
        {"deep_ensembles": 3},
        {"single": {}, "enumerated": ["sae"]},
        {"single": {}, "enumerated": 5},
        {"emp": {"fixed": 3}},
        {3: {}},
        {"single": {}, "training": {"rate": [1]}},
    ],
)
def test_impossible_spaces_are_refused(values):
    with pytest.raises(SettingError, match="got"):
        read_space(values)
    with pytest.raises(SettingError, match="got"):
        make_space([Single()], training=["rate"])
