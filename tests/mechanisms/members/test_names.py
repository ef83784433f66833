"""Names of saved tensors: files of version 0.1 load."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.members.names import current_names, saved_name, saved_tensors
from pluribus.methods import SAE, BatchEnsemble, DeepEnsembles, LayerEnsembles
from tests.cases import blocks


@pytest.mark.parametrize(
    ("now", "saved"),
    [
        ("members.index.seeds", "binding.seeds"),
        ("members.tensors.own.0.weight", "binding.own.0.weight"),
        ("members.learnt.tensors.own.0.weight", "binding.own.0.weight"),
        ("members.learnt.index.kept", "binding.kept"),
        ("members.prior.tensors.own.0.weight", "binding.prior.own.0.weight"),
        ("members.tensors.shared.members.index.x", "binding.shared.members.index.x"),
    ],
)
def test_names_in_files_are_those_of_version_0_1(now, saved):
    assert saved_name(now) == saved
    assert current_names([now], {saved, "other"}) == {saved: now}


METHODS = [
    DeepEnsembles(members=2),
    DeepEnsembles(members=2, prior_scale=0.5),
    BatchEnsemble(members=2),
    LayerEnsembles(options=2),
    SAE(),
]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_state_dict_of_version_0_1_loads(method):
    one, other = (pl.convert(blocks(3), method, example=torch.zeros(2, 6), seed=seed) for seed in (0, 1))
    other.load_state_dict(saved_tensors(one.state_dict()))
    assert_close(other.state_dict(), one.state_dict(), rtol=0, atol=0)


def test_the_order_of_parameters_is_that_of_version_0_1():
    ensemble = pl.convert(nn.Linear(3, 2), BatchEnsemble(members=2))
    names = [saved_name(name) for name, _ in ensemble.named_parameters()]
    assert names == [
        "binding.shared.weight",
        "binding.own.bias",
        "binding.first.weight",
        "binding.second.weight",
    ]
