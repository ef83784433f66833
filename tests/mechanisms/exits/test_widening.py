"""Widening: layers with several slots compute what they did, and merge again."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.exits.widening import SOURCE, merge_first, widen_first, widen_output

LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), (5, 4), -1),
    "conv1d": (lambda: nn.Conv1d(4, 3, 2), (5, 4, 6), 1),
    "conv2d": (lambda: nn.Conv2d(4, 3, 2, padding=1, padding_mode="circular", bias=False), (5, 4, 6, 6), 1),
    "conv3d": (lambda: nn.Conv3d(4, 3, 2), (5, 4, 3, 3, 3), 1),
    "gru": (lambda: nn.GRU(4, 3, 2, batch_first=True, bidirectional=True), (5, 6, 4), -1),
}


def first(returned):
    return returned[0] if isinstance(returned, tuple) else returned


def test_a_widened_last_layer_repeats_its_outputs():
    for layer, x in [(nn.Linear(4, 3), torch.randn(5, 4)), (nn.Conv1d(4, 3, 1), torch.randn(5, 4, 6))]:
        expected = layer(x)
        widen_output(layer, SOURCE, 2)
        assert_close(layer(x), torch.cat([expected, expected], dim=1))


@pytest.mark.parametrize("name", LAYERS)
def test_merged_slots_compute_what_they_did_with_the_same_sample(name):
    build, shape, axis = LAYERS[name]
    layer, x = build().double(), torch.randn(shape, dtype=torch.float64)
    before = {key: value.shape for key, value in layer.state_dict().items()}
    widen_first(layer, 3)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    expected = first(layer(torch.cat([x, x, x], dim=axis)))
    merge_first(layer, 3)
    assert {key: value.shape for key, value in layer.state_dict().items()} == before
    assert_close(first(layer(x)), expected)


def test_padding_of_merged_tables_is_the_one_that_was_read():
    layer, ids = nn.Embedding(4, 2, padding_idx=1), torch.tensor([[0, 1, 3]])
    widen_first(layer, 3)
    nn.init.normal_(layer.weight)
    expected = layer.weight[[0, 1, 3]] + layer.weight[[4, 1, 7]] + layer.weight[[8, 1, 11]]
    merge_first(layer, 3)
    assert_close(layer(ids)[0], expected)


def test_merged_tables_are_added():
    layer = nn.Embedding(4, 2)
    widen_first(layer, 3)
    nn.init.normal_(layer.weight)
    expected = layer.weight.view(3, 4, 2).sum(0)
    merge_first(layer, 3)
    assert layer.num_embeddings == 4
    assert_close(layer(torch.arange(4)), expected)
