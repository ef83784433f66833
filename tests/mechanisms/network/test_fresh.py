"""Fresh networks: one architecture, weights of their own, by initialiser or by factory."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.errors import ConversionError
from pluribus.mechanisms.network.fresh import fresh_modules
from pluribus.mechanisms.network.network import Network
from tests.zoo import mlp


@pytest.mark.parametrize("model", [mlp(), mlp], ids=["module", "factory"])
def test_modules_differ_and_follow_from_the_seed(model):
    network = Network(model)
    (one, other), redrawn = fresh_modules(network, 2, seed=3)
    (again, _), _ = fresh_modules(network, 2, seed=3)
    assert not torch.equal(one[0].weight, other[0].weight)
    assert_close(again.state_dict(), one.state_dict(), rtol=0, atol=0)
    assert redrawn == []


def test_a_bare_parameter_is_redrawn_and_named():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 3))

    assert fresh_modules(Network(Bare()), 1, seed=0)[1] == ["weight"]


def test_a_factory_must_build_one_architecture():
    sizes = iter(range(2, 9))
    with pytest.raises(ConversionError, match=r"one architecture, expected shape .* of bias"):
        fresh_modules(Network(lambda: nn.Linear(3, next(sizes))), 1, seed=0)
