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


def test_kernels_that_begin_at_one_place_in_memory_stay_apart():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(2, 6, 3), nn.Conv2d(6, 4, 3)

        def forward(self, x):
            return self.second(self.first(x))

    network = Network(Two(), torch.zeros(2, 2, 9, 9))
    store = torch.randn(6 * 4 * 9)
    views = {"first.weight": store[: 6 * 2 * 9].view(6, 2, 3, 3), "second.weight": store.view(4, 6, 3, 3)}
    tensors = {**network.tensors(), **views}
    (found,) = with_channels_last(lambda rows: iter([tensors]), read_program(network))([0])
    for name, view in views.items():
        assert torch.equal(found[name], view)


def test_wide_kernels_and_networks_without_any_are_not_narrow():
    wide = Network(nn.Conv2d(160, 160, 3), torch.zeros(2, 160, 3, 3))
    plain = Network(nn.Linear(3, 2), torch.zeros(2, 3))
    for network in (wide, plain):
        assert not is_narrow(read_program(network), network.tensors())
