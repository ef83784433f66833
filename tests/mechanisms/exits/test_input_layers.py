"""Input layers: first layers, masks beside them, and why a network cannot take several inputs."""

import pytest
import torch
from torch import nn

from pluribus.mechanisms.exits.data_flow import read_data_flow
from pluribus.mechanisms.exits.input_layers import find_input_layers
from pluribus.mechanisms.network.network import Network
from tests import zoo
from tests.cases import case_named


class Bypass(zoo.ThreeLayers):
    def forward(self, x):
        return self.head(self.first(x).relu()) + x[:, :3]


class Masked(zoo.ThreeLayers):
    def forward(self, x, mask):
        return self.head(self.middle(self.first(x)) * mask)


def input_layers(model, example):
    return find_input_layers(read_data_flow(Network(model, example)))


def test_norms_before_the_first_layer_are_none():
    model = nn.Sequential(nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    assert input_layers(model, torch.zeros(2, 6)) == (("2",), (), "")


def test_several_inputs_have_several_first_layers():
    case = case_named("two_inputs")
    assert input_layers(case.model(), case.inputs()) == (("left", "right"), (), "")


def test_a_mask_enters_beside_the_first_layers():
    found = input_layers(Masked(), {"x": torch.zeros(2, 6), "mask": torch.ones(2, 8)})
    assert found == (("first",), ("mask",), "")
    assert input_layers(Masked(), (torch.zeros(2, 6), torch.ones(2, 8))) == found


@pytest.mark.parametrize(
    ("model", "shape", "reason"),
    [
        (Bypass, (6,), "the input gets by the first layers into the network itself"),
        (zoo.grouped_cnn, (4, 8, 8), r"0 (Conv2d) has groups=2"),
        (zoo.CustomMatmul, (6,), r"the network itself (CustomMatmul) computes matmul"),
        (lambda: zoo.parametrized_cnn(nn.utils.parametrizations.weight_norm), (2, 8, 8), "weight of 0"),
        (lambda: nn.Sequential(nn.Flatten(), nn.ReLU()), (6,), "no layer reads the input"),
    ],
    ids=["bypass", "groups", "bare", "computed", "nothing"],
)
def test_what_cannot_be_widened_is_named(model, shape, reason):
    assert reason in input_layers(model(), torch.zeros(2, *shape))[2]


def test_a_tied_embedding_is_named_with_what_shares_it():
    case = case_named("tied_embedding")
    assert "shares its weight with 4" in input_layers(case.model(), case.inputs())[2]
