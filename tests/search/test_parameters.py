"""Names, values and texts of parameters."""

from pluribus.axes import Between, Ends, OneOf
from pluribus.methods import DeepEnsembles, EarlyExit, Single
from pluribus.search.making import make_space
from pluribus.search.parameters import axes_to_json, given_settings, parts_of, value_of

PAIR = Ends(Between(0.0, 1.0), OneOf((0.5,)))


def test_pair_has_a_parameter_for_each_end():
    assert list(parts_of("sae.alpha", PAIR)) == ["sae.alpha.start", "sae.alpha.end"]
    assert value_of({"a.start": 0.1, "a.end": 0.5}, "a", PAIR) == (0.1, 0.5)
    assert list(parts_of("members", Between(1, 2))) == ["members"]


def test_given_settings_are_those_that_differ_from_their_defaults():
    assert given_settings(DeepEnsembles(members=3)) == {"members": 3}
    assert axes_to_json({"members": OneOf((2, 3))}) == {"members": [2, 3]}


def test_space_is_written_with_what_was_left_out():
    space = make_space(
        [Single(), EarlyExit(), DeepEnsembles(prior_scale=1.0)],
        training=["lr"],
        sizes={"width": OneOf((4, 8))},
    )
    assert str(space).splitlines() == [
        "single",
        "deep_ensembles",
        "    prior_scale = 1.0",
        "    members: 2 to 8",
        "training",
        "    lr: 0.0001 to 0.03 (log)",
        "width: one of 4, 8",
        "left out: early_exit, the network has no stages to exit after",
    ]
