"""Feature axes: followed through operators, and guessed from the rank where nothing tells."""

import torch
from torch import nn

from pluribus.mechanisms.exits.cut_points import read_cut_points
from pluribus.mechanisms.exits.feature_axes import feature_axis, resolution
from pluribus.mechanisms.network.network import Network
from tests import zoo


def test_the_axis_of_features_follows_permutations():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.mix, self.back = nn.Conv2d(2, 5, 3), nn.Linear(5, 5), nn.Conv2d(5, 3, 1)
            self.turn = zoo.Apply(lambda x: x.permute(0, 3, 1, 2))

        def forward(self, x):
            x = self.mix(self.conv(x).permute(0, 2, 3, 1))
            return self.back(self.turn(x)).mean((2, 3))

    points = read_cut_points(Network(Turned(), torch.zeros(2, 2, 6, 6))).points
    axes = {one.name: one.axis for one in points}
    assert axes == {"conv": 1, "mix": -1, "turn": 1, "back": 1}


def test_axis_and_resolution_of_unknown_operators_follow_from_the_rank():
    assert feature_axis((2, 5), 1) == -1
    assert feature_axis((2, 5, 6, 6), None) == 1
    assert resolution((2, 5, 6, 7), 1) == (6, 7)
    assert resolution((2, 9, 5), -1) == (9,)


def test_a_value_without_axes_has_no_features():
    class Scaled(zoo.ThreeLayers):
        def forward(self, x):
            x = self.middle(self.first(x))
            return self.head(x / x.sum())

    points = read_cut_points(Network(Scaled(), torch.ones(2, 6)))
    assert {one.name: one.axis for one in points.points} == {"first": -1, "middle": -1}
