"""Improvement: draw the configuration that is expected to enlarge the hypervolume of the front most.

Zhang & Golovin, "Random hypervolume scalarizations for provable multi-objective black box optimization",
ICML 2020, for the hypervolume as a mean, Eq. (1); the criterion is the expected improvement of it.

Every objective has a Gaussian process (`pluribus.search.gaussian_process`). Costs are among the objectives
and have hardly any noise, so that after a few trials the search knows what a configuration costs, and spends
its trials where quality is in doubt. The hypervolume that losses y dominate is a mean over directions:

    HV(Y) ∝ E_λ max_{y ∈ Y} s_λ(y),    s_λ(y) = min_k (max(0, r_k − y_k) / λ_k)^K                    (1)
    x = argmax_x E_{λ, f} max(0, s_λ(f(x)) − max_{y ∈ Y} s_λ(y))                                    (2)

    symbol   here
    y, r     losses scaled to [0, 1]; the reference point, as far beyond the worst as in figures
    λ        directions(): even on the part of the sphere where all coordinates are positive
    f        draws of the Gaussian processes
    K        how many objectives there are

Objectives whose values are all positive are modelled by their logarithms: settings multiply losses and costs.
A budget multiplies Eq. (2) by the probability that it is met; trials of a method that failed, or were stopped
early, by the share of its trials that were not. Trials that other processes are running count as if their
predictions had come true, so that several processes do not draw the same.
"""

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import NormalDist
from typing import Any, final

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from pluribus.axes import Between, OneOf
from pluribus.errors import SettingError
from pluribus.report.budget import Limit
from pluribus.search.encoding import Encoder
from pluribus.search.front import MARGIN, ranks
from pluribus.search.gaussian_process import Array, GaussianProcess, Points
from pluribus.search.space import METHOD, Space
from pluribus.search.trial_ends import came_to_nothing, is_measured, losses_of
from pluribus.search.worker import COST, distribution, draw_evenly

CANDIDATES = 500
"""Configurations that are drawn to choose from."""
CHANGED = 0.3
"""Share of the settings that differ between a configuration near the front and one of it."""
DRAWS = 256
"""Directions, and draws of the processes, over which Eq. (2) is a mean."""
REST = 0.01
"""Share of what the candidates may be that is beyond either end of the scale."""
LEAST_TRIALS = 2
"""Measured trials without which nothing can be modelled."""

Values = Mapping[str, Any]


def directions(count: int, dimensions: int, generator: np.random.Generator) -> Array:
    """Return directions that are even on the positive part of the sphere, `[count, dimensions]`."""
    drawn = np.abs(generator.standard_normal((count, dimensions)))
    found: Array = np.maximum(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), 1e-9)
    return found


def scalarised(losses: Array, reference: float, along: Array) -> Array:
    """Return Eq. (1) of losses `[..., draws, objectives]` in a direction for each draw, `[..., draws]`."""
    shares = np.maximum(0.0, reference - losses) / along
    found: Array = shares.min(-1) ** losses.shape[-1]
    return found


def improvement(front: Array, drawn: Array, along: Array, reference: float = 1 + MARGIN) -> Array:
    """Return Eq. (2) of candidates, `[candidates]`.

    Args:
        front: Losses of the front, `[n, objectives]`, scaled.
        drawn: Losses that each candidate may have, `[candidates, draws, objectives]`.
        along: A direction for each draw.
        reference: The reference point in every coordinate.
    """
    best = scalarised(front[:, None, :], reference, along).max(0)
    found: Array = np.maximum(0.0, scalarised(drawn, reference, along) - best).mean(-1)
    return found


@final
class Modelled:
    """One number of configurations, by a Gaussian process of it or of its logarithm."""

    def __init__(self, points: Points, values: Array) -> None:
        self.is_log = bool((values > 0).all())
        known = np.log(values) if self.is_log else values
        self.mean, self.scale = float(known.mean()), float(known.std()) or 1.0
        self.process = GaussianProcess(points, (known - self.mean) / self.scale)

    def draw(self, points: Points, normal: Array) -> Array:
        """Return values of points, `[points, draws]`, from standard normal numbers `[draws]`."""
        mean, std = self.process.predict(points)
        return self._back(mean[:, None] + std[:, None] * normal)

    def expected(self, points: Points) -> Array:
        """Return the middle of what is expected of points, `[points]`."""
        return self._back(self.process.predict(points)[0])

    def believe(self, points: Points) -> None:
        """Let the predictions of points come true."""
        self.process = self.process.believing(points)

    def chance_below(self, points: Points, most: float) -> Array:
        """Return the probability that points are at most a number, `[points]`."""
        mean, std = self.process.predict(points)
        if self.is_log:
            most = math.log(most) if most > 0 else -math.inf
        distances = ((most - self.mean) / self.scale - mean) / std
        return np.array([NormalDist().cdf(distance) for distance in distances])

    def _back(self, values: Array) -> Array:
        found = values * self.scale + self.mean
        return np.exp(found) if self.is_log else found


@final
class ImprovementSampler(BaseSampler):
    """Draw the configuration of Eq. (2) from the space of a search.

    Args:
        space: The conditional space.
        limits: The budget.
        finished: Methods whose configurations are all tried from the start; they are not drawn.
        seed: Of the draws.
        startup: Trials before the first that is modelled; of each method equally many.
    """

    def __init__(
        self,
        space: Space,
        limits: Sequence[Limit] = (),
        finished: Collection[str] = (),
        seed: int | None = None,
        startup: int = LEAST_TRIALS,
    ) -> None:
        self.space, self.limits, self.startup = space, tuple(limits), max(startup, LEAST_TRIALS)
        self.kinds = [kind for kind in space.kinds if kind not in finished] or list(space.kinds)
        self.parameters = space.parameters(flat=False)
        self.encoder = Encoder(space)
        self.normal, self.random = np.random.default_rng(seed), random.Random(seed)
        self.even = RandomSampler(seed)

    def reseed_rng(self) -> None:
        self.normal, self.random = np.random.default_rng(), random.Random()
        self.even.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return all parameters of all methods; none for a trial that was queued with parameters."""
        if trial.system_attrs.get("fixed_params"):
            return {}
        return {name: distribution(axis) for name, axis in self.parameters.items()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the parameters of the next configuration; none while too few trials are measured."""
        if not search_space:
            return {}
        others = [one for one in study.get_trials(deepcopy=False) if one.number != trial.number]
        measured = [one for one in others if is_measured(one)]
        if len(measured) < self.startup:
            return self._drawn(self._least_tried(others))
        drawn = self._candidates(measured, others, study.directions)
        if not drawn:
            return {}
        scores = self._scores(measured, others, study.directions, self.encoder.points(drawn))
        return drawn[int(scores.argmax())]

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return an evenly drawn value."""
        return self.even.sample_independent(study, trial, param_name, param_distribution)

    def _scores(
        self,
        measured: Sequence[FrozenTrial],
        others: Sequence[FrozenTrial],
        study_directions: Sequence[StudyDirection],
        candidates: Points,
    ) -> Array:
        """Return Eq. (2) of candidates, times the probability that they are within the budget."""
        losses = np.array([losses_of(one, study_directions) for one in measured])
        points = self.encoder.points([one.params for one in measured])
        running = self.encoder.points([one.params for one in others if self._is_running(one)])
        count = losses.shape[1]
        normal = self.normal.standard_normal((DRAWS, count))
        drawn = np.empty((len(candidates), DRAWS, count))
        believed = np.empty((len(running), count))
        for k in range(count):
            model = Modelled(points, losses[:, k])
            if len(running):
                believed[:, k] = model.expected(running)
                model.believe(running)
            drawn[:, :, k] = model.draw(candidates, normal[:, k])
        known = np.concatenate([losses, believed])
        # Bad configurations that were not tried yet are within the scale too: it must not depend on what
        # happened to come first.
        least = np.minimum(losses.min(0), np.quantile(drawn, REST, axis=(0, 1)))
        worst = np.maximum(losses.max(0), np.quantile(drawn, 1 - REST, axis=(0, 1)))
        span = np.where(worst > least, worst - least, 1.0)
        along = directions(DRAWS, count, self.normal)
        found = improvement((known - least) / span, (drawn - least) / span, along)
        return (
            found * self._chance_within(others, candidates) * self._chance_measured(others)[candidates.kinds]
        )

    def _chance_within(self, others: Sequence[FrozenTrial], candidates: Points) -> Array:
        """Return the probability that candidates are within the budget, by the costs of all trials so far."""
        chance = np.ones(len(candidates))
        for limit in self.limits:
            name = f"{limit.name}_ratio" if limit.relative else limit.name
            known = [one for one in others if name in one.user_attrs.get(COST, {}) and self._is_whole(one)]
            if len(known) < LEAST_TRIALS:
                continue
            costs = np.array([one.user_attrs[COST][name] for one in known])
            model = Modelled(self.encoder.points([one.params for one in known]), costs)
            chance *= model.chance_below(candidates, limit.most)
        return chance

    def _chance_measured(self, others: Sequence[FrozenTrial]) -> Array:
        """Return the share of trials that are measured to the end, of each method."""
        measured, tried = np.ones(len(self.space.kinds)), np.ones(len(self.space.kinds))
        for one in others:
            if self._is_whole(one) and (is_measured(one) or came_to_nothing(one)):
                place = self.space.kinds.index(self.encoder.kind(one.params))
                tried[place] += 1
                measured[place] += is_measured(one)
        found: Array = measured / tried
        return found

    def _candidates(
        self,
        measured: Sequence[FrozenTrial],
        others: Sequence[FrozenTrial],
        study_directions: Sequence[StudyDirection],
    ) -> list[dict[str, Any]]:
        """Return configurations that were not tried: even ones of each method, and a third near the front."""
        tried = {_frozen(one.params) for one in others}
        places = ranks([losses_of(one, study_directions) for one in measured])
        front = [one.params for one, rank in zip(measured, places, strict=True) if rank == 0]
        near = [one for one in front if self.encoder.kind(one) in self.kinds and self.encoder.has_all(one)]
        found = []
        for number in range(CANDIDATES):
            if near and number % 3 == 0:
                drawn = self._changed(self.random.choice(near))
            else:
                drawn = self._drawn(self.kinds[number % len(self.kinds)])
            key = _frozen(drawn)
            if drawn and key not in tried:
                tried.add(key)
                found.append(drawn)
        return found

    def _least_tried(self, others: Sequence[FrozenTrial]) -> str:
        """Return a method that has fewest trials."""
        tried = dict.fromkeys(self.kinds, 0)
        for one in others:
            kind = self.encoder.kind(one.params)
            if kind in tried:
                tried[kind] += 1
        fewest = min(tried.values())
        return self.random.choice([kind for kind in self.kinds if tried[kind] == fewest])

    def _drawn(self, kind: str) -> dict[str, Any]:
        """Return an even configuration of a method; an impossible one is empty."""
        drawn: dict[str, Any] = {}

        def draw(name: str, axis: Between | OneOf) -> Any:
            drawn[name] = kind if name == METHOD else draw_evenly(axis, self.random)
            return drawn[name]

        return self._possible(draw, drawn)

    def _changed(self, near: Values) -> dict[str, Any]:
        """Return a configuration that has other values in some settings, at least in one on average."""
        drawn: dict[str, Any] = {}

        def draw(name: str, axis: Between | OneOf) -> Any:
            kept = name == METHOD or self.random.random() >= CHANGED
            drawn[name] = near[name] if kept else draw_evenly(axis, self.random)
            return drawn[name]

        return self._possible(draw, drawn)

    def _possible(self, draw: Callable[[str, Any], Any], drawn: dict[str, Any]) -> dict[str, Any]:
        try:
            self.space.suggest(draw)
        # Settings that exclude one another.
        except SettingError:
            return {}
        return drawn

    def _is_whole(self, trial: FrozenTrial) -> bool:
        has_method = METHOD in trial.params or METHOD not in self.parameters
        return has_method and self.encoder.has_all(trial.params)

    def _is_running(self, trial: FrozenTrial) -> bool:
        return trial.state == TrialState.RUNNING and self._is_whole(trial)


def _frozen(parameters: Values) -> frozenset[tuple[str, Any]]:
    return frozenset(parameters.items())
