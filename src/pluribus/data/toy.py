"""Toys in one and two dimensions, drawn afresh from a seed: as many samples as asked for."""

import math
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Generator, Tensor

from pluribus.data.assembly import assemble
from pluribus.data.split import Split
from pluribus.data.splits import Sizes, check_sizes, seeded, wanted
from pluribus.data.task import Task
from pluribus.likelihood import Categorical, Gaussian, Likelihood
from pluribus.ranges import check

COUNTS = {"train": 500, "validation": 100, "test": 1000}
MOST = 10_000_000
"""Samples of a part: they are drawn into memory."""
HIDDEN = 100
BIAS_VARIANCE, WEIGHT_VARIANCE = 20.0, 5.0


def uniform(count: int, low: float, high: float, generator: Generator) -> Tensor:
    return torch.rand(count, generator=generator, dtype=torch.float64) * (high - low) + low


def normal(*shape: int, variance: float, generator: Generator) -> Tensor:
    return math.sqrt(variance) * torch.randn(shape, generator=generator, dtype=torch.float64)


def outside(count: int, near: float, far: float, generator: Generator) -> Tensor:
    """Numbers of either sign with a magnitude from `near` to `far`."""
    sign = torch.arange(count) % 2 * 2 - 1
    return sign * uniform(count, near, far, generator)


def drawn(
    name: str,
    draw: Callable[[int, Generator], Split],
    elsewhere: Callable[[int, Generator], Tensor],
    noise: float,
    sizes: Sizes,
    likelihood: Likelihood,
) -> Task:
    """A task of samples by `draw`; out of distribution is as much as for testing by `elsewhere`."""
    check("noise", noise, float, at_least=0)
    check_sizes(sizes)
    counts = dict(COUNTS)
    for part in counts:
        count = wanted(sizes, part)
        if count is not None:
            check(part, count, int, at_least=0 if part == "validation" else 1, at_most=MOST)
            counts[part] = count
    seed = sizes.get("seed", 0)
    train, validation, test = (draw(counts[part], seeded(seed, name, part)) for part in COUNTS)
    ood = {"elsewhere": elsewhere(counts["test"], seeded(seed, name, "elsewhere"))}
    classes = 2 if isinstance(likelihood, Categorical) else None
    return assemble(name, (train, validation, test), {}, likelihood=likelihood, classes=classes, ood=ood)


def two_moons(noise: float = 0.1, **sizes: Unpack[Sizes]) -> Task:
    """Two half circles that reach into each other; out of distribution: a ring around both.

    The moons of scikit-learn, with angles that are drawn instead of evenly spaced.

    Args:
        noise: Standard deviation of the noise that is added to both coordinates, at least 0.
        **sizes: How much of each part to keep.
    """

    def draw(count: int, generator: Generator) -> Split:
        y = torch.arange(count) % 2
        angle = uniform(count, 0, torch.pi, generator)
        upper = torch.stack((angle.cos(), angle.sin()), 1)
        lower = torch.stack((1 - angle.cos(), 0.5 - angle.sin()), 1)
        points = torch.where(y[:, None] == 0, upper, lower)
        return Split(points + normal(count, 2, variance=noise**2, generator=generator), y)

    def ring(count: int, generator: Generator) -> Tensor:
        angle, radius = uniform(count, 0, 2 * torch.pi, generator), uniform(count, 3, 5, generator)
        return torch.stack((0.5 + radius * angle.cos(), 0.25 + radius * angle.sin()), 1)

    return drawn("two_moons", draw, ring, noise, sizes, Categorical())


def two_sinusoids(noise: float = 0.3, **sizes: Unpack[Sizes]) -> Task:
    """Points around two sinusoids on x in [-5, 5], one per class: Figure 4 of the Masksembles paper.

    The paper states the range and that the noise is Gaussian. Ours are the curves `sin(x) ± 1` and the
    standard deviation `noise` of the second coordinate. Out of distribution: 5 < |x| < 10.

    Args:
        noise: Standard deviation of the noise, at least 0.
        **sizes: How much of each part to keep.
    """

    def draw(count: int, generator: Generator) -> Split:
        y = torch.arange(count) % 2
        x = uniform(count, -5, 5, generator)
        height = x.sin() + (2 * y - 1) + normal(count, variance=noise**2, generator=generator)
        return Split(torch.stack((x, height), 1), y)

    def beside(count: int, generator: Generator) -> Tensor:
        return torch.stack((outside(count, 5, 10, generator), uniform(count, -3, 3, generator)), 1)

    return drawn("two_sinusoids", draw, beside, noise, sizes, Categorical())


def sign_function(x: Tensor, generator: Generator) -> Tensor:
    """A random function at points `[count]`: appendix D.1 and Figure 3 of the model patching paper.

        y = B + Σ_h W_h sign(b_h + w_h x),    B, b ~ N(0, 20),    W, w ~ N(0, 5),    h = 1 … 100

    The second number is read as a variance; the paper leaves it open.
    """
    biases = normal(HIDDEN + 1, variance=BIAS_VARIANCE, generator=generator)
    weights = normal(2, HIDDEN, variance=WEIGHT_VARIANCE, generator=generator)
    hidden = (biases[1:] + weights[0] * x[:, None]).sign()
    return biases[0] + hidden.mv(weights[1])


def sign_network(noise: float = 1.0, **sizes: Unpack[Sizes]) -> Task:
    """One `sign_function` to learn on x in [-10, 10]; the seed chooses it.

    The paper draws such functions to compare priors. Ours are the range and the standard deviation `noise`.
    Out of distribution: 10 < |x| < 20.

    Args:
        noise: Standard deviation of the observations, at least 0.
        **sizes: How much of each part to keep.
    """
    seed = sizes.get("seed", 0)

    def draw(count: int, generator: Generator) -> Split:
        x = uniform(count, -10, 10, generator)
        y = sign_function(x, seeded(seed, "sign_function"))
        return Split(x[:, None], (y + normal(count, variance=noise**2, generator=generator))[:, None])

    def beside(count: int, generator: Generator) -> Tensor:
        return outside(count, 10, 20, generator)[:, None]

    return drawn("sign_network", draw, beside, noise, sizes, Gaussian())
