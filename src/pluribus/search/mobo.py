"""MOBO: multi-objective Bayesian optimisation by random scalarisation of Gaussian processes.

Paria, Kandasamy & Póczos, "A flexible framework for multi-objective Bayesian optimization using random
scalarizations", UAI 2019: the optimiser of the Single Architecture Ensemble paper.

Every objective has a Gaussian process. For each trial weights are drawn, and the point is taken whose
optimistic values, scalarised by these weights, are best:

    λ ~ Dirichlet(1, …, 1)
    x = argmin_x max_k λ_k (μ_k(x) − √β σ_k(x) − z_k)                                         (1)

    symbol      here
    μ_k, σ_k    GaussianProcess.predict, of losses scaled to mean 0 and deviation 1
    z_k         the least loss so far (the Chebyshev scalarisation of the paper, its Sec. 3)
    β           OPTIMISM squared

The minimum is sought among random points and small changes of the front. Kernel: Matérn 5/2 with one length
for each parameter group, chosen with the noise by marginal likelihood on a grid.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from pluribus.search.front import ranks
from pluribus.search.trial_ends import losses_of

Array = NDArray[np.float64]

LENGTHS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
NOISES = (1e-4, 1e-2, 1e-1, 0.5)
OPTIMISM = 1.0
CANDIDATES = 1000
STEP = 0.1
"""Deviation of a small change, as a share of the range of a parameter."""


def matern(first: Array, second: Array, length: float) -> Array:
    """Return the Matérn 5/2 kernel between points, `[n, d]` and `[m, d]`, as `[n, m]`."""
    squares = ((first[:, None, :] - second[None, :, :]) ** 2).sum(-1)
    scaled = np.sqrt(5 * squares) / length
    found: Array = (1 + scaled + scaled**2 / 3) * np.exp(-scaled)
    return found


@final
class GaussianProcess:
    """A Gaussian process of values with mean 0 and deviation 1; length and noise by marginal likelihood."""

    def __init__(self, points: Array, values: Array) -> None:
        self.points, self.values = points, values
        grid = itertools.product(LENGTHS, NOISES)
        self.length, self.noise = max(grid, key=lambda pair: self._evidence(*pair))
        self.factor = self._factor(self.length, self.noise)
        half = np.linalg.solve(self.factor, values)
        self.weights = np.linalg.solve(self.factor.T, half)

    def _factor(self, length: float, noise: float) -> Array:
        kernel = matern(self.points, self.points, length)
        found: Array = np.linalg.cholesky(kernel + noise * np.eye(len(self.points))).astype(np.float64)
        return found

    def _evidence(self, length: float, noise: float) -> float:
        """Return the logarithm of the marginal likelihood, without its constant."""
        factor = self._factor(length, noise)
        half = np.linalg.solve(factor, self.values)
        return float(-0.5 * half @ half - np.log(np.diag(factor)).sum())

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Return mean and deviation at points, `[n]` each."""
        across = matern(points, self.points, self.length)
        half = np.linalg.solve(self.factor, across.T)
        variance = np.maximum(1 - (half**2).sum(0), 1e-12)
        return across @ self.weights, np.sqrt(variance)


def encode(parameters: Mapping[str, Any], space: Mapping[str, BaseDistribution]) -> list[float]:
    """Return parameters as numbers in [0, 1]; of choices, one number each."""
    found: list[float] = []
    for name, axis in space.items():
        value = parameters[name]
        if isinstance(axis, CategoricalDistribution):
            # Two choices are as far apart as two ends of a range.
            found += [float(choice == value) / math.sqrt(2) for choice in axis.choices]
            continue
        low, high, log = axis.low, axis.high, axis.log  # type: ignore[attr-defined]
        if log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        found.append((value - low) / (high - low) if high > low else 0.0)
    return found


def choose(points: Array, losses: Array, candidates: Array, random: np.random.Generator) -> int:
    """Return the position of the candidate of Eq. (1).

    Args:
        points: Encoded parameters of finished trials, `[n, d]`.
        losses: Their losses, `[n, objectives]`.
        candidates: Encoded candidates, `[m, d]`.
        random: Draws the weights.
    """
    deviation = losses.std(0)
    scaled = (losses - losses.mean(0)) / np.where(deviation > 0, deviation, 1.0)
    weights = random.dirichlet(np.ones(losses.shape[1]))
    scores = np.full(len(candidates), -np.inf)
    for k, weight in enumerate(weights):
        mean, std = GaussianProcess(points, scaled[:, k]).predict(candidates)
        optimistic = mean - OPTIMISM * std - scaled[:, k].min()
        scores = np.maximum(scores, weight * optimistic)  # Eq. (1)
    return int(scores.argmin())


@final
class MOBOSampler(BaseSampler):
    """Draw parameters by random scalarisation of Gaussian processes.

    Args:
        startup: Trials that are drawn evenly at first.
        seed: Of its draws.
    """

    def __init__(self, startup: int = 10, seed: int | None = None) -> None:
        self.startup = startup
        self.random = np.random.default_rng(seed)
        self.even = RandomSampler(seed)
        self.shared = IntersectionSearchSpace()

    def reseed_rng(self) -> None:
        """Draw differently from other threads."""
        self.random = np.random.default_rng()
        self.even.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters that all finished trials have."""
        shared = self.shared.calculate(study)
        return {name: axis for name, axis in shared.items() if not axis.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the parameters of a trial; none while there are too few finished ones."""
        done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if not search_space or len(done) < self.startup:
            return {}
        losses = np.array([losses_of(one, study.directions) for one in done])
        points = np.array([encode(one.params, search_space) for one in done])
        best = [one for one, rank in zip(done, ranks(losses.tolist()), strict=True) if rank == 0]
        drawn = self._candidates(search_space, best)
        candidates = np.array([encode(one, search_space) for one in drawn])
        return drawn[choose(points, losses, candidates, self.random)]

    def _candidates(
        self, space: dict[str, BaseDistribution], best: Sequence[FrozenTrial]
    ) -> list[dict[str, Any]]:
        """Return random parameters, half of them near the front."""
        found = []
        for number in range(CANDIDATES):
            drawn = {name: self._drawn(axis) for name, axis in space.items()}
            if number % 2:
                near = best[int(self.random.integers(len(best)))].params
                drawn = {name: self._changed(axis, near[name], drawn[name]) for name, axis in space.items()}
            found.append(drawn)
        return found

    def _drawn(self, axis: BaseDistribution) -> Any:
        """Return an evenly drawn value."""
        if isinstance(axis, CategoricalDistribution):
            return axis.choices[int(self.random.integers(len(axis.choices)))]
        low, high, log = axis.low, axis.high, axis.log  # type: ignore[attr-defined]
        share = self.random.random()
        if isinstance(low, int):
            return low + int(share * (high - low + 1))
        if log:
            return float(low * (high / low) ** share)
        return float(low + share * (high - low))

    def _changed(self, axis: BaseDistribution, near: Any, drawn: Any) -> Any:
        """Return a value near one of the front; a choice is drawn anew now and then."""
        if isinstance(axis, CategoricalDistribution):
            return drawn if self.random.random() < STEP else near
        low, high, log = axis.low, axis.high, axis.log  # type: ignore[attr-defined]
        if log:
            span = math.log(high) - math.log(low)
            moved = math.exp(math.log(near) + STEP * span * self.random.standard_normal())
        else:
            moved = near + STEP * (high - low) * self.random.standard_normal()
        moved = min(max(moved, low), high)
        return round(moved) if isinstance(low, int) else moved

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return an evenly drawn value."""
        return self.even.sample_independent(study, trial, param_name, param_distribution)
