"""The testbed: the kernel is that of wide networks, and the posterior what Gaussian conditioning gives."""

import pytest
import torch
from torch.testing import assert_close

from pluribus.data.testbed import draw_problem, wide_kernel
from pluribus.errors import SettingError


def test_the_kernel_is_the_covariance_of_a_wide_network():
    generator, width, networks = torch.Generator().manual_seed(0), 512, 64
    x = torch.randn(4, 3, generator=generator)
    held = torch.cat((x, torch.ones(4, 1)), 1) / 3**0.5  # a bias is one more weight
    for _ in range(2):
        weights = torch.randn(networks, held.shape[-1], width, generator=generator)
        held = (held @ weights).relu() / width**0.5
    assert_close((held @ held.mT).mean(0), wide_kernel(x, x), rtol=0.06, atol=0)


def test_the_kernel_halves_with_every_hidden_layer_where_inputs_are_equal():
    x = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    assert_close(wide_kernel(x, x), torch.tensor([[26 / 2 / 4]], dtype=torch.float64))


@pytest.mark.parametrize("relative", [False, True])
def test_the_posterior_is_that_of_joint_gaussians(relative):
    problem = draw_problem(2, 5, noise=0.3, seed=0, points=7, relative=relative)
    x, (points, posterior) = problem.x.double(), problem.test
    prior = wide_kernel(x, x)
    share = prior.diag().mean() if relative else 1
    observed = prior + 0.3**2 * share * torch.eye(10, dtype=torch.float64)
    there, inverse = points.double(), torch.linalg.inv(observed)
    cross = wide_kernel(x, there)
    mean = cross.T @ inverse @ problem.y.double()
    variance = (wide_kernel(there, there) - cross.T @ inverse @ cross).diag()
    assert_close(posterior, torch.stack((mean, (variance + 1e-6).sqrt()), 1), rtol=1e-4, atol=1e-5)


def test_with_many_points_and_little_noise_the_posterior_knows_the_function():
    problem = draw_problem(1, 200, noise=0.01, seed=1, points=50)
    means, deviations = problem.test[1].T
    assert deviations.median() < 0.02
    assert means.std() > 0.1


def test_the_same_seed_draws_the_same_problem():
    first, again, other = (draw_problem(2, 3, 0.1, seed, points=4) for seed in (0, 0, 1))
    assert_close((first.x, first.y, first.validation), (again.x, again.y, again.validation), rtol=0, atol=0)
    assert not torch.equal(first.y, other.y)


@pytest.mark.parametrize("wrong", [{"inputs": 0}, {"ratio": 0}, {"noise": 0.0}, {"points": 0}])
def test_impossible_problems_are_refused(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        draw_problem(**{"inputs": 2, "ratio": 3, "noise": 0.1, "seed": 0} | wrong)
