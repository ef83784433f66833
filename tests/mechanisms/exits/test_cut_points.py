"""Cut points: which values all of the data flow passes."""

import torch
from torch import nn

from pluribus.mechanisms.exits.cut_points import feature_axis, read_cut_points, resolution
from pluribus.mechanisms.network.network import Network
from tests import zoo


def cut_points(model, *shape):
    return read_cut_points(Network(model, torch.zeros(2, *shape)))


def test_values_beside_a_skip_connection_are_not_passed():
    found = cut_points(zoo.residual_cnn().eval(), 2, 8, 8)
    assert [one.name for one in found.points] == ["0", "1", "2", "3", "4", "5", "6"]
    assert "a skip connection from 2" in found.why_not("3.0")


def test_the_axis_of_features_follows_permutations():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.mix, self.back = nn.Conv2d(2, 5, 3), nn.Linear(5, 5), nn.Conv2d(5, 3, 1)
            self.turn = zoo.Apply(lambda x: x.permute(0, 3, 1, 2))

        def forward(self, x):
            x = self.mix(self.conv(x).permute(0, 2, 3, 1))
            return self.back(self.turn(x)).mean((2, 3))

    axes = {one.name: one.axis for one in cut_points(Turned(), 2, 6, 6).points}
    assert axes == {"conv": 1, "mix": -1, "turn": 1, "back": 1}


def test_the_parameters_before_a_value_are_those_it_needs():
    found = cut_points(zoo.mlp(), 6)
    needs = {one.name: found.needs(one) for one in found.points}
    assert needs["1"] == {"0.weight", "0.bias"}


def test_sizes_are_no_data():
    class Sized(zoo.ThreeLayers):
        def forward(self, x):
            x = self.first(x)
            y = self.middle(x)
            return self.head(y + torch.zeros_like(x)) + x.shape[0]

    assert [one.name for one in cut_points(Sized(), 6).points] == ["first", "middle", "head"]


def test_a_value_whose_first_axis_is_not_the_batch_is_not_passed():
    found = cut_points(zoo.transformer(batch_first=False).eval(), 5, 4)
    assert "is not the batch" in found.why_not("1.1")


def test_axis_and_resolution_of_unknown_operators_follow_from_the_rank():
    assert feature_axis((2, 5), 1) == -1
    assert feature_axis((2, 5, 6, 6), None) == 1
    assert resolution((2, 5, 6, 7), 1) == (6, 7)
    assert resolution((2, 9, 5), -1) == (9,)


def test_a_network_without_layers_has_no_segments():
    assert read_cut_points(Network(nn.ReLU(), torch.randn(2, 8))).segments() == []
