"""Local noise: outputs of layers with Gaussian weights are drawn with the right mean and deviation."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from pluribus.errors import InputError
from pluribus.mechanisms.members.local_noise import LocalNoise


def parameters(*shape):
    generator = torch.Generator().manual_seed(len(shape))
    mean = torch.randn(shape, generator=generator, dtype=torch.float64)
    return mean, 0.1 + torch.rand(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(
    ("function", "sizes", "x"),
    [(F.linear, (3, 4), torch.randn(2, 4).double()), (F.conv1d, (3, 2, 3), torch.randn(2, 2, 5).double())],
)
def test_outputs_have_the_moments_of_drawn_weights(function, sizes, x):
    torch.manual_seed(0)
    mean, deviation = parameters(*sizes)
    bias, of_bias = parameters(3)
    drawn, local = [], []
    for _ in range(4000):
        weight = mean + deviation * torch.randn_like(mean)
        drawn.append(function(x, weight, bias + of_bias * torch.randn_like(bias)))
        local.append(function(x, LocalNoise.of(mean, deviation), LocalNoise.of(bias, of_bias)))
    one, other = torch.stack(drawn), torch.stack(local)
    assert_close(other.mean(0), one.mean(0), rtol=0, atol=0.2)
    assert_close(other.std(0), one.std(0), rtol=0.1, atol=0.0)


def test_each_sample_has_draws_of_its_own():
    mean, deviation = parameters(3, 4)
    outputs = F.linear(torch.ones(2, 4).double(), LocalNoise.of(mean, deviation))
    assert not torch.equal(outputs[0], outputs[1])


def test_gradients_reach_mean_and_deviation():
    mean, deviation = (one.requires_grad_() for one in parameters(3, 4))
    F.linear(torch.ones(2, 4).double(), LocalNoise.of(mean, deviation)).sum().backward()
    assert mean.grad.abs().sum() > 0
    assert deviation.grad.abs().sum() > 0


def test_other_functions_are_refused():
    mean, deviation = parameters(3, 4)
    with pytest.raises(InputError, match="no rule"):
        LocalNoise.of(mean, deviation) * 2
