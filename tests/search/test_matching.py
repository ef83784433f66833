"""Runs made elsewhere are found in a space."""

from pluribus.methods import SAE, DeepEnsembles, Single
from pluribus.search.making import make_space
from pluribus.search.matching import find_parameters
from pluribus.search.space import Configuration


def test_run_made_elsewhere_is_found_in_the_space():
    space = make_space([DeepEnsembles(), SAE()], depths=3, training=["lr"])
    found = find_parameters(space, DeepEnsembles(members=3).to_dict(), {"lr": 0.001}, flat=False)
    assert found == {"method": "deep_ensembles", "deep_ensembles.members": 3, "training.lr": 0.001}
    assert space.configuration(found) == Configuration(DeepEnsembles(members=3), {"lr": 0.001})
    assert find_parameters(space, DeepEnsembles(members=99).to_dict(), {"lr": 0.001}, flat=False) == {}
    assert (
        find_parameters(space, DeepEnsembles(members=3, prior_scale=1.0).to_dict(), {"lr": 0.001}, flat=False)
        == {}
    )
    assert find_parameters(space, Single().to_dict(), {"lr": 0.001}, flat=False) == {}


def test_pairs_are_found_by_their_ends():
    space = make_space([SAE()], depths=3)
    run = SAE(inputs=3, alpha=(0.5, 1.0))
    found = find_parameters(space, run.to_dict() | {"alpha": [0.5, 1.0]}, {}, flat=True)
    assert (found["alpha.start"], found["alpha.end"], found["inputs"]) == (0.5, 1.0, 3)
    assert space.configuration(found, flat=True).method == run
