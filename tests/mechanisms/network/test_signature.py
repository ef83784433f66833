"""An ensemble shows the signature of its network's forward."""

import copy
import inspect
import pickle

import torch
from torch import nn

import pluribus as pl
from pluribus.mechanisms.network.signature import with_signature_of
from pluribus.methods import DeepEnsembles


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, pixels, scale=1.0, **rest):
        return self.head(pixels * scale)


def names(ensemble):
    return list(inspect.signature(ensemble.forward).parameters)


def test_forward_has_the_parameters_of_the_network_and_its_own():
    ensemble = pl.convert(Net(), DeepEnsembles(members=2))
    assert names(ensemble) == ["pixels", "scale", "members", "draws", "rest"]
    assert inspect.signature(ensemble.forward).parameters["scale"].default == 1.0
    assert list(inspect.signature(pl.Ensemble.forward).parameters)[:2] == ["self", "args"]


def test_copies_run_their_own_weights():
    ensemble = pl.convert(Net(), DeepEnsembles(members=2)).eval()
    x = torch.ones(1, 3)
    other = copy.deepcopy(ensemble)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert other(x).abs().sum() == 0 < ensemble(x).abs().sum()
    assert names(other) == names(ensemble)
    assert torch.equal(pickle.loads(pickle.dumps(ensemble))(x), ensemble(x))


def test_a_forward_without_a_signature_leaves_the_method():
    method = pl.convert(Net(), DeepEnsembles(members=2)).parameter_groups
    assert with_signature_of(max, method) is method
