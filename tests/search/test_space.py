"""The space: what methods declare, written by hand, drawn, enumerated and found again."""

import json
import random

import pytest

from pluribus.axes import Between, OneOf
from pluribus.errors import SettingError
from pluribus.method import Method
from pluribus.methods import SAE, DeepEnsembles, EarlyExit, MCDropout, PackedEnsembles, Single
from pluribus.search.space import Configuration, make_space, read_space
from pluribus.search.worker import draw_evenly
from pluribus.training import Training


def evenly(seed=0):
    generator = random.Random(seed)
    return lambda name, axis: draw_evenly(axis, generator)


def own_methods():
    # Other tests may have defined methods.
    return [kind for kind in Method.known().values() if kind.__module__.startswith("pluribus.")]


def test_every_axis_of_every_method_draws_valid_settings():
    for seed in range(5):
        for kind in own_methods():
            space = make_space([kind()], depths=3)
            assert isinstance(space.suggest(evenly(seed)).method, kind)
    assert Training.axes().keys() >= {"lr", "steps", "batch"}


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


def test_conditional_space_draws_the_settings_of_one_method():
    space = make_space([DeepEnsembles(), MCDropout()], training=["lr"])
    drawn = []

    def draw(name, axis):
        drawn.append(name)
        return "deep_ensembles" if name == "method" else draw_evenly(axis, random.Random(0))

    found = space.suggest(draw)
    assert drawn == ["method", "deep_ensembles.members", "training.lr"]
    assert set(found.training) == {"lr"}


def test_flat_space_shares_settings_of_one_name_and_axis():
    space = make_space([DeepEnsembles(), PackedEnsembles(), MCDropout()])
    names = list(space.parameters(flat=True))
    assert names.count("members") == 1
    assert "deep_ensembles.members" not in names
    drawn = []
    space.suggest(lambda name, axis: drawn.append(name) or draw_evenly(axis, random.Random(1)), flat=True)
    assert sorted(drawn) == sorted(names)


def test_flat_space_keeps_settings_apart_whose_axes_differ():
    space = read_space({"deep_ensembles": {"members": [2, 3]}, "swag": {"members": [4, 5]}})
    assert "deep_ensembles.members" in space.parameters(flat=True)


def test_space_is_read_as_it_was_written():
    space = make_space([SAE(), MCDropout(draws=4), Single()], training=["lr"], width=OneOf((4, 8)), depths=3)
    again = read_space(json.loads(json.dumps(space.to_dict())))
    assert again.to_dict() == space.to_dict()
    assert str(again) == str(space)
    assert again.choices[1].method == MCDropout(draws=4)


def test_methods_without_axes_and_enumerated_ones_come_first():
    space = read_space(
        {"single": {}, "deep_ensembles": {"members": [2, 3]}, "enumerated": ["deep_ensembles"]}
    )
    methods = [space.configuration(one).method for one in space.first()]
    assert methods == [Single(), DeepEnsembles(members=2), DeepEnsembles(members=3)]


def test_enumeration_needs_lists():
    space = make_space([MCDropout(), Single()], enumerated=["mc_dropout"])
    with pytest.raises(SettingError, match=r"mc_dropout\.rate"):
        space.first()


def test_run_made_elsewhere_is_found_in_the_space():
    space = make_space([DeepEnsembles(), SAE()], depths=3, training=["lr"])
    found = space.find(DeepEnsembles(members=3).to_dict(), {"lr": 0.001}, flat=False)
    assert found == {"method": "deep_ensembles", "deep_ensembles.members": 3, "training.lr": 0.001}
    assert space.configuration(found) == Configuration(DeepEnsembles(members=3), {"lr": 0.001})
    assert space.find(DeepEnsembles(members=99).to_dict(), {"lr": 0.001}, flat=False) == {}
    assert space.find(DeepEnsembles(members=3, prior_scale=1.0).to_dict(), {"lr": 0.001}, flat=False) == {}
    assert space.find(Single().to_dict(), {"lr": 0.001}, flat=False) == {}


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
        {"single": {}, "training": {"rate": [1]}},
    ],
)
def test_impossible_spaces_are_refused(values):
    with pytest.raises(SettingError, match="got"):
        read_space(values)
    with pytest.raises(SettingError, match="got"):
        make_space([Single()], training=["rate"])
