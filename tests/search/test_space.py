"""The space: what methods declare, written by hand, drawn, enumerated and found again."""

import json
import random

from pluribus.axes import OneOf
from pluribus.method import Method
from pluribus.methods import SAE, DeepEnsembles, MCDropout, PackedEnsembles, Single
from pluribus.search.making import make_space, read_space
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
    space = make_space(
        [SAE(), MCDropout(draws=4), Single()], training=["lr"], sizes={"width": OneOf((4, 8))}, depths=3
    )
    again = read_space(json.loads(json.dumps(space.to_dict())))
    assert again.to_dict() == space.to_dict()
    assert str(again) == str(space)
    assert again.choices[1].method == MCDropout(draws=4)
