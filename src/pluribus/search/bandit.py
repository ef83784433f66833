"""Choose the method of the next trial by Thompson sampling; another sampler draws its settings.

Thompson, "On the likelihood that one unknown probability exceeds another", Biometrika 25, 1933.

A search over several methods first has to find out which of them are worth its trials. TPE models the method
as one parameter among others, by its best trials alone, which are two of the first twenty. Here each method
has a probability that its next trial is on the front, with a uniform prior:

    p_m ~ Beta(1 + on front, 1 + tried − on front),    m = argmax p_m                          (1)

Trials that were skipped, because they repeat another or are beyond the budget, count as tried, so that a
method with few configurations is left when they are used up. So do running trials of other processes.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, final

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from pluribus.search.front import ranks
from pluribus.search.queue import ERROR
from pluribus.search.space import METHOD
from pluribus.search.trial_ends import losses_of
from pluribus.search.worker import BUDGET


def count_by_method(study: Study, besides: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return how many trials of each method are on the front, and how many were tried.

    Args:
        study: The study.
        besides: Number of the trial that is drawn, which does not count.
    """
    on_front: dict[str, int] = {}
    tried: dict[str, int] = {}
    measured, losses = list[FrozenTrial](), list[list[float]]()
    for trial in study.get_trials(deepcopy=False):
        # A trial that was lost with its process says nothing about its method.
        lost = trial.state == TrialState.FAIL and ERROR not in trial.user_attrs
        if METHOD not in trial.params or trial.number == besides or lost:
            continue
        tried[trial.params[METHOD]] = tried.get(trial.params[METHOD], 0) + 1
        if trial.state == TrialState.COMPLETE and trial.user_attrs.get(BUDGET, -1.0) <= 0:
            measured.append(trial)
            losses.append(losses_of(trial, study.directions))
    for trial, rank in zip(measured, ranks(losses), strict=True):
        if rank == 0:
            on_front[trial.params[METHOD]] = on_front.get(trial.params[METHOD], 0) + 1
    return on_front, tried


@final
class MethodBandit(BaseSampler):
    """Draw the method by Eq. (1), and its settings by another sampler.

    Args:
        settings: Draws all other parameters.
        finished: Methods whose configurations are all tried from the start; they are not drawn.
        seed: Of the draws.
    """

    def __init__(
        self, settings: BaseSampler, finished: Collection[str] = (), seed: int | None = None
    ) -> None:
        self.settings, self.finished = settings, frozenset(finished)
        self.generator = np.random.default_rng(seed)

    def reseed_rng(self) -> None:
        self.generator = np.random.default_rng()
        self.settings.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.settings.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        drawn = dict(self.settings.sample_relative(study, trial, search_space))
        # Optuna asks `sample_independent` for what is missing here.
        drawn.pop(METHOD, None)
        return drawn

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        if param_name != METHOD:
            return self.settings.sample_independent(study, trial, param_name, param_distribution)
        assert isinstance(param_distribution, CategoricalDistribution)
        kinds = [str(kind) for kind in param_distribution.choices]
        open_kinds = [kind for kind in kinds if kind not in self.finished] or kinds
        return self.choose(open_kinds, *count_by_method(study, trial.number))

    def choose(self, kinds: Sequence[str], on_front: Mapping[str, int], tried: Mapping[str, int]) -> str:
        """Return a method by Eq. (1)."""
        chances = []
        for kind in kinds:
            good, of = on_front.get(kind, 0), tried.get(kind, 0)
            chances.append(self.generator.beta(1 + good, 1 + of - good))
        return kinds[int(np.argmax(chances))]

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self.settings.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self.settings.after_trial(study, trial, state, values)
