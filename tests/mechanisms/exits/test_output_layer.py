"""Output layer: the last layer, its width, and the shape of the prediction."""

import pytest
import torch
from torch import nn

from pluribus.mechanisms.exits.cut_points import read_cut_points
from pluribus.mechanisms.exits.output_layer import OutputLayer, find_output_layer
from pluribus.mechanisms.network.network import Network
from tests import zoo


def output_layer(model, *shape):
    return find_output_layer(read_cut_points(Network(model, torch.zeros(2, *shape))))


def test_last_linear_layer_makes_the_output():
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    assert output_layer(model, 6) == OutputLayer("2", 5, (3,), -1)


def test_last_convolution_makes_the_output():
    model = nn.Sequential(nn.Conv2d(2, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 3, 1))
    assert output_layer(model, 2, 8, 8) == OutputLayer("2", 5, (3, 8, 8), 1)


class Skipped(zoo.ThreeLayers):
    def forward(self, x):
        x = self.first(x)
        return self.head(x) + x[:, :3]


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(self.layer(x))


@pytest.mark.parametrize(
    ("model", "width"),
    [
        (lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), 3),
        (Twice, 3),
        (lambda: nn.Sequential(nn.ReLU()), 3),
    ],
    ids=["norm", "twice", "nothing"],
)
def test_output_of_no_single_layer_has_none(model, width):
    assert output_layer(model(), 3) == OutputLayer(None, width, (3,), -1)


def test_value_that_jumps_over_the_last_layer_leaves_none():
    assert output_layer(Skipped(), 6).name is None


def test_one_number_for_each_sample_has_width_one():
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), zoo.Apply(lambda x: x.sum(1)))
    assert output_layer(model, 6).shape == ()
