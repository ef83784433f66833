"""Scores: the closed form, both directions, prefixes and pairs."""

import torch
from torch.distributions import MultivariateNormal, Normal, kl_divergence
from torch.testing import assert_close

from pluribus.data.testbed import draw_problem
from pluribus.testbed.scoring import RIDGE, _pair_kl, gaussian_kl, joint_score, score, score_prefixes


def test_divergence_is_the_closed_form():
    mean, other = torch.randn(2, 50).double()
    std, wide = torch.rand(2, 50).double() + 0.1
    expected = kl_divergence(Normal(mean, std), Normal(other, wide))
    assert_close(gaussian_kl((mean, std), (other, wide)), expected)
    assert_close(gaussian_kl((mean, std), (mean, std)), torch.zeros(50).double())


def test_directions_are_told_apart():
    outputs = torch.randn(40, 6).double()
    reference = torch.stack((torch.zeros(6), torch.full((6,), 2.0)), 1).double()
    model = Normal(outputs.mean(0), outputs.std(0, correction=0) + RIDGE)
    exact = Normal(reference[:, 0], reference[:, 1] + RIDGE)
    found = score(outputs, reference)
    assert_close(found["code"], kl_divergence(exact, model).mean().item())
    assert_close(found["printed"], kl_divergence(model, exact).mean().item())


def test_prefixes_are_scores_of_the_first_members():
    outputs, reference = torch.randn(7, 5).double() + 100, torch.rand(5, 2).double()
    order = [3, 1, 0, 6, 2, 5, 4]
    for count, found in enumerate(score_prefixes(outputs, order, reference), 1):
        assert_close(found, score(outputs[order[:count]], reference))


def test_divergence_of_pairs_is_the_closed_form():
    root = torch.randn(2, 4, 2, 2).double()
    covariance, other = root @ root.mT + 0.1 * torch.eye(2).double()
    mean, centre = torch.randn(2, 4, 2).double()
    expected = kl_divergence(MultivariateNormal(mean, covariance), MultivariateNormal(centre, other))
    assert_close(_pair_kl(mean, covariance, centre, other), expected)


def test_joint_score_sees_how_points_vary_together():
    problem = draw_problem(1, 2, 0.1, seed=0, points=40)
    generator = torch.Generator().manual_seed(0)
    root = torch.linalg.cholesky(problem.test_covariance + 1e-8 * torch.eye(40))
    numbers = torch.randn(4000, 40, generator=generator, dtype=torch.float64)
    mean = problem.test[1][:, 0]
    together, apart = mean + numbers @ root.T, mean + numbers * problem.test[1][:, 1]
    assert joint_score(together, problem) < 0.01
    assert joint_score(apart, problem) > 0.1
    assert abs(score(together, problem.test[1])["code"] - score(apart, problem.test[1])["code"]) < 0.01
