"""The testbed: random functions of which the posterior is known.

Oleksienko & Iosifidis, "Layer Ensembles", IEEE MLSP 2023, after Osband et al., "The neural testbed", 2021.
Functions are drawn from the Gaussian process that a ReLU network of infinite width is. What training points
with noise leave open is then a Gaussian in closed form, against which the uncertainty of a model is judged.

    k(a, b) = (aᵀb + 1) / inputs                                             of the first layer
    k(a, b) ← (sin θ + (π − θ) cos θ) √(k(a, a) k(b, b)) / 2π                for each hidden layer

where cos θ = k(a, b) / √(k(a, a) k(b, b)).
"""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from pluribus.ranges import check

HIDDEN = 2
"""Hidden layers of the network."""
JITTER = 1e-6


@dataclass(frozen=True)
class Problem:
    """Training data, and inputs with the posterior's means and standard deviations there, `[points, 2]`.

    Attributes:
        x: Training inputs, `[samples, inputs]`.
        y: Training targets, `[samples]`.
        noise: Standard deviation of their noise.
        validation: Inputs, `[points, inputs]`, with the posterior.
        test: Others.
    """

    x: Tensor
    y: Tensor
    noise: float
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def wide_kernel(a: Tensor, b: Tensor) -> Tensor:
    """Covariance of the outputs of the infinitely wide network, `[points of a, points of b]`."""
    size = a.shape[1]
    products = (a @ b.T, a.square().sum(1), b.square().sum(1))
    cross, first, second = ((product + 1) / size for product in products)
    for _ in range(HIDDEN):
        root = (first[:, None] * second - cross.square()).clamp(min=0).sqrt()
        cross = (root + (math.pi - torch.atan2(root, cross)) * cross) / (2 * math.pi)
        first, second = first / 2, second / 2
    return cross


def draw_problem(
    inputs: int, ratio: int, noise: float, seed: int, points: int = 1000, *, relative: bool = False
) -> Problem:
    """A function, seen with Gaussian noise.

    Args:
        inputs: How many the function has, at least 1.
        ratio: Training points for each input, at least 1.
        noise: Standard deviation of the targets' noise, above 0.
        seed: Of everything that is drawn.
        points: How many are for validation, and how many for testing.
        relative: Whether the posterior takes the variance of the noise as a share of the mean variance of the
            function, as the authors' code does, in place of what it is.
    """
    for name, value in (("inputs", inputs), ("ratio", ratio), ("points", points)):
        check(name, value, int, at_least=1)
    check("seed", seed, int, at_least=0, at_most=math.inf)
    check("noise", noise, float, above=0)
    check("relative", relative, bool)
    generator = Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    x, validation, test = (normal(count, inputs) for count in (inputs * ratio, points, points))
    covariance, one = wide_kernel(x, x), torch.eye(len(x), dtype=torch.float64)
    y = torch.linalg.cholesky(covariance + JITTER * one) @ normal(len(x)) + noise * normal(len(x))
    share = covariance.diag().mean() if relative else 1.0
    factor = torch.linalg.cholesky(covariance + noise**2 * share * one)
    held = [(there.float(), _posterior(x, y, factor, there)) for there in (validation, test)]
    return Problem(x.float(), y.float(), noise, *held)


def _posterior(x: Tensor, y: Tensor, factor: Tensor, there: Tensor) -> Tensor:
    """Means and standard deviations, `[points, 2]`."""
    cross = wide_kernel(x, there)
    solved = torch.cholesky_solve(torch.cat((cross, y[:, None]), 1), factor)
    variance = wide_kernel(there, there).diag() - (cross * solved[:, :-1]).sum(0) + JITTER
    return torch.stack((cross.T @ solved[:, -1], variance.clamp(min=0).sqrt()), 1)
