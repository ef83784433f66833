"""Gaussian process over configurations of several methods.

Configurations of one method are alike if their settings are; what is true of one method says nothing about
another, but for the settings that all have in common, such as those of training:

    k(a, b) = [same method] (κ + s m(x_a, x_b)) + [shared settings] s m(z_a, z_b)                  (1)

    symbol   here
    κ        offset: how far methods are apart
    s        spread: how far configurations of a method are apart
    m        matern(): Matérn 5/2 of the distance, divided by the root of the number of settings
    x, z     all settings of a configuration, and those that all methods share; each in [0, 1]

Offset, spread, length and noise are those of a grid with the greatest marginal likelihood, times a weak
prior: with the few trials of a search, likelihood alone often finds noise without any structure, or none.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

OFFSETS = (0.1, 0.5, 1.0)
SPREADS = (0.2, 0.5, 1.0)
LENGTHS = (0.2, 0.4, 0.8, 1.6)
NOISES = (1e-4, 1e-2, 3e-2, 1e-1, 0.3)
MOST_FITTED = 150
"""Points by which the grid is judged; its time grows with their number to the third power."""
USUAL_LENGTH, LENGTH_FACTOR = 0.6, 2.2
USUAL_NOISE, NOISE_FACTOR = 0.05, 5.0
"""Centre of the prior, and the factor that is one deviation away from it; both are lognormal."""


@dataclass(frozen=True)
class Points:
    """Configurations as numbers.

    Attributes:
        kinds: The number of the method of each, `[n]`.
        own: Their settings, `[n, settings]`, filled with zeros where a method has fewer.
        sizes: How many settings each has, `[n]`.
        shared: Their settings that all methods have, `[n, shared]`; these are part of `own` too.
    """

    kinds: NDArray[np.int64]
    own: Array
    sizes: Array
    shared: Array

    def __len__(self) -> int:
        return len(self.kinds)

    def joined(self, other: "Points") -> "Points":
        """Return the points of both."""
        pairs = zip(self._parts(), other._parts(), strict=True)
        return Points(*(np.concatenate(pair) for pair in pairs))

    def every(self, step: int) -> "Points":
        """Return every so many-th point."""
        return Points(*(part[::step] for part in self._parts()))

    def _parts(self) -> tuple[NDArray[Any], ...]:
        return self.kinds, self.own, self.sizes, self.shared


@dataclass(frozen=True)
class Parameters:
    """Parameters of a kernel, Eq. (1), with the variance of the noise."""

    offset: float
    spread: float
    length: float
    noise: float

    @property
    def log_prior(self) -> float:
        """Return the logarithm of the prior, without its constant."""
        length = math.log(self.length / USUAL_LENGTH) / math.log(LENGTH_FACTOR)
        noise = math.log(self.noise / USUAL_NOISE) / math.log(NOISE_FACTOR)
        return -0.5 * (length**2 + noise**2)


GRID = tuple(itertools.starmap(Parameters, itertools.product(OFFSETS, SPREADS, LENGTHS, NOISES)))


def matern(squares: Array, length: float) -> Array:
    """Return the Matérn 5/2 kernel of squared distances."""
    scaled = np.sqrt(5 * squares) / length
    found: Array = (1 + scaled + scaled**2 / 3) * np.exp(-scaled)
    return found


@final
class Alike:
    """How alike two sets of configurations are: their kernel for any parameters."""

    def __init__(self, first: Points, second: Points) -> None:
        self.same = (first.kinds[:, None] == second.kinds[None, :]).astype(np.float64)
        # Configurations of one method have equally many settings.
        self.own = squared_distances(first.own, second.own) / np.maximum(1.0, first.sizes)[:, None]
        self.has_shared = first.shared.shape[1] > 0
        self.shared = squared_distances(first.shared, second.shared) / max(1, first.shared.shape[1])
        self.known: dict[float, tuple[Array, Array]] = {}

    def kernel(self, parameters: Parameters) -> Array:
        """Return Eq. (1)."""
        own, shared = self._matern(parameters.length)
        found: Array = parameters.offset * self.same + parameters.spread * own
        return found + parameters.spread * shared if self.has_shared else found

    def variance(self, parameters: Parameters) -> float:
        """Return the kernel of a point with itself."""
        return parameters.offset + parameters.spread * (2 if self.has_shared else 1)

    def _matern(self, length: float) -> tuple[Array, Array]:
        if length not in self.known:
            self.known[length] = self.same * matern(self.own, length), matern(self.shared, length)
        return self.known[length]


def squared_distances(first: Array, second: Array) -> Array:
    """Return the squared distances between rows, `[n, d]` and `[m, d]`, as `[n, m]`."""
    found: Array = ((first[:, None, :] - second[None, :, :]) ** 2).sum(-1)
    return found


def factor_of(alike: Alike, parameters: Parameters) -> Array:
    """Return the Cholesky factor of the kernel of points with themselves, with noise."""
    kernel = alike.kernel(parameters)
    found: Array = np.linalg.cholesky(kernel + parameters.noise * np.eye(len(kernel))).astype(np.float64)
    return found


def best_parameters(points: Points, values: Array) -> Parameters:
    """Return those of the grid with the greatest marginal likelihood times the prior."""
    step = math.ceil(len(points) / MOST_FITTED)
    some, known = points.every(step), values[::step]
    alike = Alike(some, some)

    def evidence(parameters: Parameters) -> float:
        factor = factor_of(alike, parameters)
        half = np.linalg.solve(factor, known)
        return float(-0.5 * half @ half - np.log(np.diag(factor)).sum()) + parameters.log_prior

    return max(GRID, key=evidence)


@final
class GaussianProcess:
    """A Gaussian process of values with mean 0 and deviation 1.

    Args:
        points: Where it was measured.
        values: What was measured, `[n]`.
        parameters: Of the kernel; None takes the best of the grid.
    """

    def __init__(self, points: Points, values: Array, parameters: Parameters | None = None) -> None:
        self.points, self.values = points, values
        self.parameters = parameters or best_parameters(points, values)
        self.factor = factor_of(Alike(points, points), self.parameters)
        self.weights = np.linalg.solve(self.factor.T, np.linalg.solve(self.factor, values))

    def predict(self, points: Points) -> tuple[Array, Array]:
        """Return mean and deviation at points, `[m]` each."""
        alike = Alike(points, self.points)
        across = alike.kernel(self.parameters)
        half = np.linalg.solve(self.factor, across.T)
        variance = alike.variance(self.parameters) - (half**2).sum(0)
        return across @ self.weights, np.sqrt(np.maximum(variance, 1e-12))

    def believing(self, points: Points) -> "GaussianProcess":
        """Return the process after its own predictions have come true at points that are being measured."""
        values = np.concatenate([self.values, self.predict(points)[0]])
        return GaussianProcess(self.points.joined(points), values, self.parameters)
