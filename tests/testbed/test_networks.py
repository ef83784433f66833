"""The testbed's network starts as a draw of the testbed's prior."""

import pytest
import torch
from torch.testing import assert_close

from pluribus.data.testbed import wide_kernel
from pluribus.testbed.networks import make_mlp
from pluribus.testbed.presets import parameters_of


def test_parameters_are_counted():
    network = make_mlp(7, 20)
    assert sum(p.numel() for p in network.parameters()) == parameters_of(7, 20)


@pytest.mark.parametrize("scaled", ["all", "weights"])
def test_scaled_networks_are_the_same_functions(scaled):
    plain, other = make_mlp(4, 16), make_mlp(4, 16, scaled=scaled)
    for one, layer in zip(plain, other, strict=True):
        if isinstance(one, torch.nn.Linear):
            layer.weight.data = one.weight.data * one.in_features**0.5
            layer.bias.data = one.bias.data * (one.in_features**0.5 if scaled == "all" else 1)
    x = torch.randn(5, 4)
    assert_close(plain(x), other(x))


@pytest.mark.parametrize(("zeroed", "expected"), [("all", {"0", "2", "4"}), ("biases", set())])
def test_weights_or_biases_start_at_zero(zeroed, expected):
    found = set()
    for name, value in make_mlp(4, 16, zeroed=zeroed).named_parameters():
        if name.endswith("bias"):
            assert not value.any()
        elif not value.any():
            found.add(name.removesuffix(".weight"))
    assert found == expected


@pytest.mark.slow
def test_many_networks_vary_as_the_kernel():
    generator, count = torch.manual_seed(0), 2000
    x = torch.randn(3, 4, generator=generator)
    with torch.no_grad():
        outputs = torch.stack([make_mlp(4, 64)(x).squeeze(1) for _ in range(count)])
    # Weights are cut at two deviations, which leaves 0.774 of their variance in each of three layers. The
    # first bias has the variance 1, and not 1 / D; a fifth input makes (uᵀu + 1) / 5 = (xᵀx + 4) / 4 of it.
    inputs = torch.cat((x, torch.full((3, 1), 3.2**0.5)), 1).double() * 1.25**0.5
    expected = 0.774**3 * wide_kernel(inputs, inputs)
    assert_close((outputs.T @ outputs / count).double(), expected, rtol=0.1, atol=0)
