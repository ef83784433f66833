"""Masked norms: statistics of norms that a mask reaches."""

import torch
from torch import nn

from pluribus.mechanisms.masks.masked_norms import find_masked_statistics
from pluribus.mechanisms.network.network import Network

NAMES = [f"{norm}.{one}" for norm in ("before", "behind") for one in ("running_mean", "num_batches_tracked")]


class Masked(nn.Module):
    """A network with a norm before its mask, and one behind it."""

    def __init__(self):
        super().__init__()
        self.before, self.behind = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 1.0]))

    def forward(self, x):
        return self.behind(self.before(x) * self.mask)


class Unreadable(Masked):
    """The same, with a branch on values that cannot be exported."""

    def forward(self, x):
        return super().forward(x) if x.sum() > -1e9 else x


def test_norms_behind_a_mask_are_found_with_their_counters():
    network = Network(Masked(), torch.zeros(2, 4))
    assert find_masked_statistics(network, ["mask"], NAMES) == NAMES[2:]


def test_without_a_readable_data_flow_all_norms_are_taken():
    network = Network(Unreadable(), torch.zeros(2, 4))
    assert find_masked_statistics(network, ["mask"], NAMES) == NAMES
