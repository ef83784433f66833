"""Scores: how far the Gaussian of a model's members is from the exact posterior.

    KL(N(μ₁, σ₁²) ‖ N(μ₂, σ₂²)) = log(σ₂/σ₁) + (σ₁² + (μ₁ − μ₂)²) / (2 σ₂²) − 1/2           (1)

averaged over the test points. The authors' code has the posterior first, their Eq. (2) the model; both
standard deviations get 0.001 more, so that a single member has a finite score.

The joint score sees how members vary together. Pairs of test points are observed five times each with noise
of variance ε² (dyadic sampling: of two points, ten observations); the score is the divergence of the two
Gaussians of these observations, which is that of their means:

    KL(N(m, S + ε²/5 I) ‖ N(m', S' + ε²/5 I))                                               (2)
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pluribus.data.testbed import Problem
from pluribus.mechanisms.ranking.criteria import RIDGE

REPEATS = 5
"""Observations of each point of a pair."""
Scores = dict[str, float]


def gaussian_kl(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> Tensor:
    """Compute Eq. (1) of two Gaussians, each a mean and a standard deviation above 0."""
    (mean, std), (other_mean, other_std) = first, second
    spread = (std.square() + (mean - other_mean).square()) / (2 * other_std.square())
    return (other_std / std).log() + spread - 0.5


def score(outputs: Tensor, reference: Tensor) -> Scores:
    """Return the mean divergence of members from a reference in both directions.

    Args:
        outputs: `[members, points]`.
        reference: Means and standard deviations, `[points, 2]`.
    """
    outputs = outputs.double()
    return _mean_scores(outputs.mean(0), outputs.std(0, correction=0), reference)


def score_prefixes(outputs: Tensor, order: Sequence[int], reference: Tensor) -> list[Scores]:
    """Return the scores of the first P members of an order, for every P."""
    ordered = outputs.double()[list(order)]
    # Around their mean, the mean square less the squared mean does not cancel.
    centre = ordered.mean(0)
    ordered = ordered - centre
    counts = torch.arange(1, len(ordered) + 1)[:, None]
    means = ordered.cumsum(0) / counts
    variances = (ordered.square().cumsum(0) / counts - means.square()).clamp(min=0)
    return [
        _mean_scores(mean + centre, variance.sqrt(), reference)
        for mean, variance in zip(means, variances, strict=True)
    ]


def _mean_scores(mean: Tensor, std: Tensor, reference: Tensor) -> Scores:
    """Return Eq. (1) in both directions, averaged over points."""
    exact = (reference[:, 0], reference[:, 1] + RIDGE)
    model = (mean, std + RIDGE)
    return {
        "code": gaussian_kl(exact, model).mean().item(),
        "printed": gaussian_kl(model, exact).mean().item(),
    }


def joint_score(outputs: Tensor, problem: Problem) -> float:
    """Compute Eq. (2) for pairs of neighbouring test points, averaged; posterior first.

    Args:
        outputs: Of all members at the test points, `[members, points]`.
        problem: Whose test points these are.
    """
    points = outputs.shape[1] // 2 * 2
    pairs = torch.arange(points).view(-1, 2)
    outputs = outputs.double()
    centred = outputs - outputs.mean(0)
    covariance = torch.einsum("mpi,mpj->pij", centred[:, pairs], centred[:, pairs]) / len(outputs)
    mean = outputs.mean(0)[pairs]
    exact_mean = problem.test[1][pairs, 0]
    exact = problem.test_covariance[pairs[:, :, None], pairs[:, None]]
    noise = (problem.noise**2 / REPEATS + RIDGE**2) * torch.eye(2, dtype=torch.float64)
    return _pair_kl(exact_mean, exact + noise, mean, covariance + noise).mean().item()


def _pair_kl(mean: Tensor, covariance: Tensor, other_mean: Tensor, other: Tensor) -> Tensor:
    """Compute KL(N(m, S) ‖ N(m', S')) of Gaussians, `[pairs]`."""
    inverse = torch.linalg.inv(other)
    difference = (other_mean - mean).unsqueeze(-1)
    distance = (difference.mT @ inverse @ difference)[:, 0, 0]
    trace = (inverse @ covariance).diagonal(dim1=-2, dim2=-1).sum(-1)
    divergence: Tensor = trace + distance - mean.shape[-1] + other.logdet() - covariance.logdet()
    return divergence / 2
