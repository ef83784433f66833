"""Cut points: which values all of the data flow passes."""

import torch
from torch import nn

from pluribus.mechanisms.exits.cut_points import read_cut_points
from pluribus.mechanisms.network.network import Network
from tests import zoo


def cut_points(model, *shape):
    return read_cut_points(Network(model, torch.zeros(2, *shape)))


def test_values_beside_a_skip_connection_are_not_passed():
    found = cut_points(zoo.residual_cnn().eval(), 2, 8, 8)
    assert [one.name for one in found.points] == ["0", "1", "2", "3", "4", "5", "6"]
    assert "a skip connection from 2" in found.why_not("3.0")


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


def test_a_network_without_layers_has_no_segments():
    assert read_cut_points(Network(nn.ReLU(), torch.randn(2, 8))).segments() == []
