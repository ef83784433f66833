"""A trained network is known by its norms."""

import pytest
import torch
from torch import nn

from pluribus.mechanisms.network.layers import find_sites
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.trained_norms import has_trained_norm


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.RMSNorm(4)])
def test_a_norm_of_equal_numbers_is_new(norm):
    network = Network(nn.Sequential(nn.Linear(3, 4), norm))
    sites = find_sites(network.module)
    assert not has_trained_norm(network, sites)
    with torch.no_grad():
        network.module[1].weight[0] += 0.1
    assert has_trained_norm(network, sites)
    assert not has_trained_norm(network, sites[:1])


def test_a_norm_without_parameters_tells_nothing():
    network = Network(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, affine=False)))
    assert not has_trained_norm(network, find_sites(network.module))
