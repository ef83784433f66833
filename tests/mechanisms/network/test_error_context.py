"""Failures inside of a network: the layer, what it got, and the remedy that helps."""

import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus.errors import InputError
from pluribus.mechanisms.network.error_context import blame_inputs
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.methods import DeepEnsembles, EarlyExit, Single
from tests.cases import blocks

IMAGE = torch.randn(4, 3, 6, 6)
REMEDIES = [
    (IMAGE[:, :1], "check shapes and the number of channels"),
    (IMAGE[0], r"a single sample is x\[None\]"),
    (IMAGE.double(), r"give inputs the precision of the network: x\.to\(torch\.float32\)"),
    (torch.zeros(4, 3, 6, 6, dtype=torch.uint8), r"images must be floating point: x\.float\(\) / 255"),
    (IMAGE.to("meta"), "move inputs to cpu, where the network is"),
]


def cnn():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 2))


@pytest.mark.parametrize(("x", "remedy"), REMEDIES, ids=["channels", "batch", "precision", "uint8", "device"])
def test_the_remedy_is_for_what_is_wrong(x, remedy):
    with pytest.raises(
        InputError, match=rf"layer \d \(.*\) failed, on .*The network was called with .*; .*{remedy}"
    ):
        pl.convert(cnn(), DeepEnsembles(members=2)).eval()(x)


class Tokens(nn.Sequential):
    def forward(self, ids):
        if ids.ndim > 2:
            raise ValueError("boom")
        return super().forward(ids).mean(1)


@pytest.mark.parametrize(
    ("ids", "remedy"),
    [
        (torch.zeros(2, 3), r"indices must be whole numbers: x\.long\(\)"),
        (torch.full((2, 3), 9), "check that it takes these"),
        (torch.zeros(2, 3, 1, dtype=torch.long), "check that it takes these"),
    ],
    ids=["floats", "too great", "its own"],
)
def test_networks_of_tokens_are_not_told_to_divide(ids, remedy):
    with pytest.raises(InputError, match=remedy):
        pl.convert(Tokens(nn.Embedding(5, 4), nn.Linear(4, 2)), Single()).eval()(ids)


def test_other_errors_are_not_the_fault_of_the_inputs():
    blame_inputs(Inputs.of(torch.full((2,), torch.nan)), InputError("the real reason"))


def test_inputs_without_values_are_not_looked_at():
    blame_inputs(Inputs.of(torch.zeros(2, 3, device="meta")), InputError("outputs must be finite"))


def test_inputs_that_are_not_finite_are_named():
    error = InputError("outputs must be finite")
    with pytest.raises(InputError, match=r"1 of 2 samples hold NaN or infinity \(1, from 0\)") as found:
        blame_inputs(Inputs.of(torch.tensor([[1.0], [torch.inf]])), error)
    assert found.value.__cause__ is error


def test_layers_of_a_network_with_exits_have_the_user_s_names():
    ensemble = pl.convert(blocks(2), EarlyExit(), example=torch.zeros(2, 6)).eval()
    with pytest.raises(InputError, match=r"layer 0 \(Linear\) failed, on \(float32\[3, 5\]\)"):
        ensemble(torch.zeros(3, 5))


def test_inputs_that_are_not_finite_are_named_and_not_the_learning_rate():
    ensemble, x = pl.convert(nn.Linear(3, 2), Single()), torch.zeros(6, 3)
    x[2, 1], x[4, 0] = torch.nan, torch.inf
    with pytest.raises(InputError, match=r"however: 2 of 6 samples hold NaN or infinity \(2, 4, from 0\)"):
        ensemble.predict(x)
    with pytest.raises(InputError, match=r"5 of 5 samples hold NaN or infinity \(0, 1, 2, …, from 0\)"):
        ensemble.predict(torch.full((5, 3), torch.nan))


def test_outputs_that_are_not_finite_of_sound_inputs_are_the_network_s():
    network = nn.Linear(3, 2)
    network.bias.data[0] = torch.inf
    with pytest.raises(InputError, match="outputs must be finite"):
        pl.convert(network, Single()).predict(torch.zeros(6, 3))
