"""Channels last: kernels of rows, shared ones once."""

import torch
from torch import nn

from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.running.channels_last import is_narrow, with_channels_last


def test_kernels_that_rows_share_stay_shared():
    network = Network(nn.Conv2d(2, 3, 3), torch.zeros(2, 2, 5, 5))
    program, tensors = read_program(network), network.tensors()
    assert is_narrow(program, tensors)
    first, second = with_channels_last(lambda rows: iter([tensors] * 2), program)([0, 1])
    assert first["weight"] is second["weight"]
    assert first["weight"].is_contiguous(memory_format=torch.channels_last)
    assert first["bias"] is tensors["bias"]


def test_wide_kernels_and_networks_without_any_are_not_narrow():
    wide = Network(nn.Conv2d(160, 160, 3), torch.zeros(2, 160, 3, 3))
    plain = Network(nn.Linear(3, 2), torch.zeros(2, 3))
    for network in (wide, plain):
        assert not is_narrow(read_program(network), network.tensors())
