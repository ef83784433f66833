"""The running mean of the weights."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.training.averaging import averaged, decay_at, start_mean, update_mean


def test_mean_follows_its_recursion():
    layer = nn.Linear(1, 1, bias=False).double()
    expected = layer.weight.item()
    mean = start_mean(layer)
    for step in range(30):
        with torch.no_grad():
            layer.weight.fill_(step)
        update_mean(mean, layer, step, decay=0.6)
        decay = min(0.6, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    assert mean["weight"].item() == pytest.approx(expected, rel=1e-12)
    assert decay_at(0, 0.999) == 0.1


def test_averaged_gives_the_own_weights_back():
    layer = nn.Linear(2, 2)
    own = {name: value.clone() for name, value in layer.state_dict().items()}
    with averaged(layer, {"weight": torch.zeros(2, 2)}):
        assert not layer.weight.any()
    assert_close(dict(layer.state_dict()), own, rtol=0, atol=0)


def test_frozen_parameters_have_no_mean():
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    assert list(start_mean(layer)) == ["weight"]
