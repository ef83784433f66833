"""Slots: widened layers and what they are given."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.errors import InputError
from pluribus.mechanisms.exits.slots import Entry, Joined, Reached, Summed
from pluribus.mechanisms.exits.widening import widen_first

LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), (5, 4), -1),
    "conv1d": (lambda: nn.Conv1d(4, 3, 2), (5, 4, 6), 1),
    "conv2d": (lambda: nn.Conv2d(4, 3, 2, padding=1, padding_mode="circular", bias=False), (5, 4, 6, 6), 1),
    "conv3d": (lambda: nn.Conv3d(4, 3, 2), (5, 4, 3, 3, 3), 1),
    "gru": (lambda: nn.GRU(4, 3, 2, batch_first=True, bidirectional=True), (5, 6, 4), -1),
}


def first(returned):
    return returned[0] if isinstance(returned, tuple) else returned


@pytest.mark.parametrize("name", LAYERS)
def test_a_widened_layer_reads_slots_side_by_side_and_computes_what_it_did(name):
    build, shape, axis = LAYERS[name]
    layer, x = build().double(), torch.randn(shape, dtype=torch.float64)
    expected = first(layer(x))
    widen_first(layer, 3)
    assert_close(first(layer(torch.cat([x, x, x], dim=axis))), expected)
    entry = Entry(3, 1)
    layer.register_forward_pre_hook(Joined(entry, 0), with_kwargs=True)
    assert_close(first(layer(input=x)), expected)
    others = [torch.randn_like(x), torch.randn_like(x)]
    entry.kept = [{0: other} for other in others]
    plain = copy.deepcopy(layer)
    plain._forward_pre_hooks.clear()
    assert_close(first(layer(x)), first(plain(torch.cat([x, *others], dim=axis))))


@pytest.mark.parametrize("padding", [None, 2])
def test_an_embedding_adds_what_slots_find_in_rows_of_their_own(padding):
    layer, ids = nn.Embedding(5, 3, padding_idx=padding), torch.tensor([[0, 2, 4], [1, 1, 3]])
    expected = layer(ids)
    widen_first(layer, 2)
    entry = Entry(2, 1)
    layer.register_forward_pre_hook(Joined(entry, 0), with_kwargs=True)
    layer.register_forward_hook(Summed())
    assert_close(layer(ids), expected)
    nn.init.normal_(layer.weight)
    other = torch.tensor([[3, 3, 0], [4, 0, 1]])
    entry.kept = [{0: other}]
    assert_close(layer(ids), layer.weight[ids] + layer.weight[5 + other])


def test_padding_of_every_slot_learns_nothing():
    layer = nn.Embedding(5, 3, padding_idx=2)
    widen_first(layer, 2)
    layer.register_forward_pre_hook(Joined(Entry(2, 1), 0), with_kwargs=True)
    layer(torch.tensor([[2, 1]])).sum().backward()
    assert layer.weight.grad.abs().sum(1).nonzero().flatten().tolist() == [1, 6]


def test_capturing_stops_when_all_layers_are_reached():
    entry = Entry(2, 2)
    entry.capturing, entry.kept = True, [{}]
    one, two = torch.ones(1), torch.zeros(1)
    assert entry.receive(0, one) == [one, one]
    with pytest.raises(Reached):
        entry.receive(1, two)
    entry.capturing = False
    assert entry.receive(0, two) == [two, one]


def test_slot_without_an_input_to_a_layer_is_refused():
    entry = Entry(2, 2)
    entry.kept = [{0: torch.ones(1)}]
    with pytest.raises(InputError, match=r"must be of one kind, got a layer .*\. Pass the same"):
        entry.receive(1, torch.ones(1))
