"""MIMO: independent samples in training, the same one in prediction."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import ConversionError
from pluribus.methods import MIMO
from tests.cases import seeded

X, Y = torch.randn(8, 3, generator=seeded(0)), torch.arange(8) % 2


def mlp():
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))


def test_it_is_the_network_of_the_paper():
    """A network that was built for three inputs at once, with the same tensors."""
    ensemble = pl.convert(mlp(), MIMO(inputs=3), example=X[:2]).eval()
    direct = nn.Sequential(nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 6))
    tensors = ensemble.members.tensors.parts()[0]
    direct.load_state_dict({name: tensors[f"network.{name}"] for name in direct.state_dict()})
    expected = direct(torch.cat([X, X, X], 1)).view(8, 3, 2).transpose(0, 1)
    assert_close(ensemble(X), expected)
    assert_close(ensemble.predict(X).probabilities, expected.softmax(-1).mean(0))


def test_the_loss_is_the_sum_over_inputs_on_samples_of_their_own():
    method = MIMO(inputs=2, batch_repetition=2)
    ensemble = pl.convert(mlp(), method, example=X[:2]).train()
    torch.manual_seed(3)
    found = ensemble.loss(X, Y)
    torch.manual_seed(3)
    first, second = method.assign(8, [(0, 0), (1, 0)], 0.0)
    assert len(first) == 16
    tensors = ensemble.members.tensors.parts()[0]
    hidden = torch.relu(
        torch.cat([X[first], X[second]], 1) @ tensors["network.0.weight"].T + tensors["network.0.bias"]
    )
    outputs = (hidden @ tensors["network.2.weight"].T + tensors["network.2.bias"]).view(16, 2, 2)
    assert_close(found, cross_entropy(outputs[:, 0], Y[first]) + cross_entropy(outputs[:, 1], Y[second]))


def test_copied_weights_compute_the_network():
    model = mlp()
    ensemble = pl.convert(model, MIMO(inputs=4, start="copy"), example=X[:2]).eval()
    assert_close(ensemble(X), model(X).expand(4, -1, -1))


def test_a_single_layer_is_refused():
    with pytest.raises(ConversionError, match="the network itself is the first layer too"):
        pl.convert(nn.Linear(3, 2), MIMO(inputs=2), example=X[:2])
