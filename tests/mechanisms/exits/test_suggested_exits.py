"""Suggested exits: ends of blocks, of stages, of resolutions, or of layers."""

import torch
from torch import nn

from pluribus.mechanisms.exits.cut_points import read_cut_points
from pluribus.mechanisms.exits.suggested_exits import suggest_exits
from pluribus.mechanisms.network.network import Network
from tests import zoo


def exits_of(model, *shape):
    network = Network(model.eval(), torch.zeros(2, *shape))
    return [one.name for one in suggest_exits(network.module, read_cut_points(network))]


def block(size):
    return zoo.Residual(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size))


class Grown(nn.Sequential):
    def __init__(self, before, after):
        super().__init__(nn.Linear(before, after), nn.ReLU())


def test_every_block_of_one_shape_is_an_exit_but_the_last():
    model = nn.Sequential(nn.Linear(6, 4), block(4), block(4), block(4), nn.Linear(4, 3))
    assert exits_of(model, 6) == ["1", "2"]


def test_last_block_of_each_shape_ends_a_stage():
    model = nn.Sequential(Grown(6, 4), Grown(4, 4), Grown(4, 5), Grown(5, 5), nn.Linear(5, 3))
    assert exits_of(model, 6) == ["1"]


def test_sequences_of_several_shapes_are_stages_already():
    parts = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in ((6, 4), (4, 4), (4, 5), (5, 5))]
    assert exits_of(nn.Sequential(*parts, nn.Linear(5, 3)), 6) == ["0", "1", "2"]


def test_pooling_ends_a_stage():
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )
    assert exits_of(model, 2, 8, 8) == ["2"]


def test_strided_layer_begins_a_stage():
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )
    assert exits_of(model, 2, 8, 8) == ["1"]


def test_layers_of_one_resolution_are_all_exits():
    model = nn.Sequential(
        nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 5), nn.Linear(5, 3)
    )
    assert exits_of(model, 6) == ["1", "3"]
