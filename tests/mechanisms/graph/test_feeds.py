"""Feeds: the layers whose weights a norm sees, by the data flow."""

import torch
from torch import nn

from pluribus.mechanisms.graph.feeds import find_feeds
from pluribus.mechanisms.network.layers import find_sites, is_norm
from pluribus.mechanisms.network.network import Network


class Branches(nn.Module):
    """A residual network of one block, with a norm before anything, after each layer and after the sum."""

    def __init__(self):
        super().__init__()
        self.first, self.stem = nn.BatchNorm1d(4), nn.Linear(4, 4)
        self.norm_1, self.layer = nn.BatchNorm1d(4), nn.Linear(4, 4)
        self.norm_2, self.norm_3 = nn.BatchNorm1d(4), nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        stem = self.stem(self.first(x))
        branch = self.layer(self.norm_1(stem).relu())
        total = self.norm_2(branch + stem)
        return self.last(self.norm_3(torch.cat((total, branch), 1)))


def feeds_of(module, x):
    sites = find_sites(module)
    site_of = {name: site.name for site in sites if not is_norm(site) for name in site.parameters}
    norm_of = {name: site.name for site in sites if is_norm(site) for name in site.statistics}
    return find_feeds(Network(module, x), site_of, norm_of)


def test_feeds_of_branches_are_all_layers_that_reach_the_norm_directly():
    assert feeds_of(Branches(), torch.zeros(3, 4)) == {
        "first": (),
        "norm_1": ("stem",),
        "norm_2": ("stem", "layer"),
        "norm_3": ("stem", "layer"),
    }


def test_feeds_of_a_chain_are_the_layer_before():
    layers = [nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 3, 3), nn.MaxPool2d(2)]
    module = nn.Sequential(*layers, nn.BatchNorm2d(3), nn.Flatten(), nn.LazyLinear(2))
    module(torch.zeros(2, 1, 10, 10))
    assert feeds_of(module, torch.zeros(2, 1, 10, 10)) == {"1": ("0",), "5": ("3",)}
