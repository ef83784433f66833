"""Fully connected networks: order of the layers, the residual equation."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.backbones import mlp, residual_mlp
from pluribus.backbones.mlp import ACTIVATIONS


def test_no_hidden_layer_is_a_linear_model():
    network, x = mlp(6, 2, hidden=()), torch.randn(5, 2, 3)
    assert_close(network(x), x.flatten(1) @ network.output.weight.T + network.output.bias)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_hidden_layers_are_linear_then_activation(activation):
    network, x = mlp(3, 2, hidden=(4, 5), activation=activation), torch.randn(7, 3)
    act = ACTIVATIONS[activation]()
    out = act(network.hidden[1].linear(act(network.hidden[0].linear(x))))
    assert_close(network(x), network.output(out))


def test_batch_norm_comes_before_the_activation_and_dropout_last():
    network = mlp(3, 2, hidden=(4,), batch_norm=True, dropout=0.1)
    kinds = [type(layer) for layer in network.hidden[0]]
    assert kinds == [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Dropout]


def test_residual_blocks_follow_their_equation():
    network, image = residual_mlp(4, 2, width=6, depth=3), torch.randn(5, 1, 2, 2)
    x = network.input(image.flatten(1)).relu()
    for block in network.blocks:
        x = x + block.norm(block.linear(x)).relu()
    assert_close(network(image), network.output(x))
