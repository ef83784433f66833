"""Files that earlier versions wrote load, and predict what they did.

A folder of `tests/fixtures/` has one saved ensemble for each kind of method, of the tiny network below after
two steps of training, and beside it inputs, outputs and weights of its members. Files of a release stay.
"""

from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import nn
from torch.testing import assert_close

import pluribus as pl

FIXTURES = Path(__file__).parents[1] / "fixtures"
SAVED = sorted(folder.parent for folder in FIXTURES.glob("*/*/ensemble.json"))


def network():
    return nn.Sequential(
        nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU()),
        nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()),
        nn.Linear(8, 3),
    )


def test_every_method_of_the_first_version_has_a_file():
    names = {folder.name for folder in SAVED if folder.parent.name == "0.1.0"}
    assert len(names) == 16
    assert names - {"layer_ensembles_shrunk"} <= set(pl.Method.known())


@pytest.mark.parametrize("folder", SAVED, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_an_earlier_file_predicts_what_it_did(folder):
    expected = load_file(folder.parent / f"{folder.name}.safetensors")
    ensemble = pl.load(folder, network(), example=expected["x"][:2])
    prediction = ensemble.predict(expected["x"])
    assert_close(prediction.members, expected["members"], rtol=1e-5, atol=1e-6)
    assert_close(prediction.weights, expected["weights"])
