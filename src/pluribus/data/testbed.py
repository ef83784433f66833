"""The testbed: random functions of which the posterior is known.

Oleksienko & Iosifidis, "Layer Ensembles", IEEE MLSP 2023, after Osband et al., "The neural testbed", 2021.
Functions are drawn from the Gaussian process that a ReLU network of infinite width is. What training points
with noise leave open is then a Gaussian in closed form, against which the uncertainty of a model is judged.

    k(a, b) = (aᵀb + 1) / inputs                                             of the first layer
    k(a, b) ← (sin θ + (π − θ) cos θ) √(k(a, a) k(b, b)) / 2π                for each hidden layer

where cos θ = k(a, b) / √(k(a, a) k(b, b)).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from pluribus.ranges import check

HIDDEN = 2
"""Hidden layers of the network."""
JITTER = 1e-6
# Rows of a kernel at a time: 10,000 points take 800 MB, and each temporary would take as much again.
BLOCK = 1024


@dataclass(frozen=True)
class Problem:
    """Training data, and inputs with the posterior's means and standard deviations there, `[points, 2]`.

    Attributes:
        x: Training inputs, `[samples, inputs]`.
        y: Training targets, `[samples]`.
        noise: Standard deviation of their noise.
        validation: Inputs, `[points, inputs]`, with the posterior.
        test: Others.
        test_covariance: Of the posterior at the test inputs, `[points, points]`.
    """

    x: Tensor
    y: Tensor
    noise: float
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    test_covariance: Tensor


def wide_kernel(a: Tensor, b: Tensor) -> Tensor:
    """Return the covariance of the outputs of the infinitely wide network, `[points of a, points of b]`."""
    return torch.cat([_kernel_block(rows, b) for rows in torch.split(a, BLOCK)])


def _kernel_block(a: Tensor, b: Tensor) -> Tensor:
    """Return the kernel of a few rows."""
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
    """Return a function, seen with Gaussian noise.

    Args:
        inputs: How many the function has, at least 1.
        ratio: Training points for each input, at least 1.
        noise: Standard deviation of the targets' noise, above 0.
        seed: Of everything that is drawn.
        points: How many are for validation, and how many for testing.
        relative: Whether the posterior takes the variance of the noise as a share of the mean variance of the
            function, as the authors' code does, in place of what it is.
    """
    return draw_problems(inputs, ratio, [noise], seed, points, relative=relative)[0]


def draw_problems(
    inputs: int,
    ratio: int,
    noises: Sequence[float],
    seed: int,
    points: int = 1000,
    *,
    relative: bool = False,
) -> list[Problem]:
    """Return one function, seen with Gaussian noise of several standard deviations.

    Inputs, function and the direction of the noise are the same for all; arguments as for `draw_problem`.
    """
    for name, value in (("inputs", inputs), ("ratio", ratio), ("points", points)):
        check(name, value, int, at_least=1)
    check("seed", seed, int, at_least=0, at_most=math.inf)
    for noise in noises:
        check("noise", noise, float, above=0)
    check("relative", relative, bool)
    generator = Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    x, validation, test = (normal(count, inputs) for count in (inputs * ratio, points, points))
    covariance = wide_kernel(x, x)
    share = covariance.diag().mean().item() if relative else 1.0
    function = _factor(covariance, JITTER) @ normal(len(x))
    error = normal(len(x))
    # One solve serves both sets of points.
    there = torch.cat((validation, test))
    cross = wide_kernel(x, there)
    problems = list[Problem]()
    for noise in noises:
        y = function + noise * error
        mean, explained = _condition(_factor(covariance, noise**2 * share), cross, y)
        prior = torch.cat([wide_kernel(part, part).diag() for part in (validation, test)])
        variance = prior - explained.square().sum(0) + JITTER
        posterior = torch.stack((mean, variance.clamp(min=0).sqrt()), 1)
        late = explained[:, points:]
        joint = wide_kernel(test, test) - late.T @ late
        early = (validation.float(), posterior[:points])
        problems.append(
            Problem(x.float(), y.float(), noise, early, (test.float(), posterior[points:]), joint)
        )
    return problems


def _factor(covariance: Tensor, variance: float) -> Tensor:
    """Return the Cholesky factor of a covariance with an independent variance added."""
    observed = covariance.clone()
    observed.diagonal().add_(variance)
    factor: Tensor = torch.linalg.cholesky(observed)
    return factor


def _condition(factor: Tensor, cross: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the posterior's means, `[points]`, and what the data explain, `[samples, points]`.

    Args:
        factor: L of the training targets' covariance.
        cross: Covariance of training inputs and points, `[samples, points]`.
        y: Training targets.
    """
    explained = torch.linalg.solve_triangular(factor, cross, upper=False)
    whitened = torch.linalg.solve_triangular(factor, y[:, None], upper=False)
    return (explained.T @ whitened).squeeze(1), explained
