"""Blocks: the outermost modules of one class that repeat."""

import torch
from torch import nn

from pluribus.mechanisms.exits.blocks import find_blocks
from pluribus.mechanisms.exits.cut_points import read_cut_points
from pluribus.mechanisms.network.network import Network
from tests import zoo


def block(size=4):
    return zoo.Residual(nn.Linear(size, size), nn.ReLU())


def sequence(size=4):
    return nn.Sequential(nn.Linear(size, size), nn.ReLU())


def blocks_of(*layers):
    network = Network(nn.Sequential(*layers), torch.zeros(2, 4))
    return [one.name for one in find_blocks(network.module, read_cut_points(network).points)]


def test_children_of_one_class_repeat():
    assert blocks_of(nn.Linear(4, 4), block(), block(), nn.Linear(4, 3)) == ["1", "2"]


def test_one_block_does_not_repeat():
    assert blocks_of(nn.Linear(4, 4), block(), nn.Linear(4, 3)) == []


def test_two_sequences_are_features_and_classifier():
    assert blocks_of(sequence(), sequence(), nn.Linear(4, 3)) == []
    assert blocks_of(sequence(), sequence(), sequence(), nn.Linear(4, 3)) == ["0", "1", "2"]


def test_single_layers_are_no_blocks():
    assert blocks_of(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)) == []


def test_blocks_are_found_inside_of_other_modules():
    assert blocks_of(nn.Sequential(block(), block()), nn.Linear(4, 3)) == ["0.0", "0.1"]


def test_blocks_that_data_passes_by_are_searched_for_smaller_ones():
    inside = zoo.Residual(nn.Sequential(block(), block()), nn.ReLU())
    assert blocks_of(nn.Linear(4, 4), inside, nn.Linear(4, 3)) == []
