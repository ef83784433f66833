"""The ensemble of a run is loaded with the network that it was trained with, and with no other."""

import pytest
import torch

import pluribus as pl
from pluribus.fingerprint import fingerprint
from pluribus.methods import DeepEnsembles
from pluribus.runs.checked_ensemble import load_checked


class Net(torch.nn.Module):
    def __init__(self, activation=torch.relu):
        super().__init__()
        self.layer, self.activation = torch.nn.Linear(3, 2), activation

    def forward(self, x):
        return self.activation(self.layer(x))


def test_ensemble_is_loaded_with_the_same_network_alone(tmp_path):
    x = torch.randn(4, 3)
    ensemble = pl.convert(Net(), DeepEnsembles(members=2), example=x).eval()
    ensemble.save(tmp_path / "ensemble")
    document = {"network": fingerprint(ensemble, x)}
    loaded = load_checked(tmp_path, document, Net, x)
    assert torch.equal(loaded(x), ensemble(x))
    assert not loaded.training
    with pytest.raises(pl.CheckpointError, match="its forward computes something else"):
        load_checked(tmp_path, document, Net(torch.tanh), x)
    # Runs of early versions have no fingerprint.
    assert load_checked(tmp_path, {}, Net(torch.tanh), x).members.count == 2
