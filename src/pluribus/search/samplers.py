"""Samplers by name: how the parameters of the next trial are drawn.

    name         draws                                                          space
    improvement  Gaussian processes of each method, by the expected             conditional
                 improvement of the hypervolume
    tpe          the method by Thompson sampling, its settings by               conditional
                 tree-structured Parzen estimators
    gp           Gaussian processes of Optuna, by hypervolume improvement       flat
    mobo         Gaussian processes, by random scalarisation, as in the         flat
                 paper of the Single Architecture Ensemble
    random       evenly                                                         conditional

Those of `gp` and `mobo` model only the parameters that all trials have. On a conditional space these are few.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import optuna
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler

from pluribus.ranges import invalid
from pluribus.report.budget import Limit
from pluribus.search.bandit import MethodBandit
from pluribus.search.enumeration import finished_methods
from pluribus.search.improvement import ImprovementSampler
from pluribus.search.mobo import MOBOSampler
from pluribus.search.queue import quiet
from pluribus.search.space import Space

NAMES = ("improvement", "tpe", "gp", "mobo", "random")
STARTUP = 10
"""Trials that are drawn evenly before a model is fitted; a quarter of the trials where there are few."""


@dataclass(frozen=True)
class Sampler:
    """A sampler by its name.

    Args:
        name: improvement, tpe, gp, mobo or random.
        seed: Of its draws in this process; None draws another in each.
    """

    name: str = "tpe"
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise invalid("sampler", f"one of {', '.join(NAMES)}", self.name, NAMES)

    @property
    def is_flat(self) -> bool:
        """Return whether it needs a flat space."""
        return self.name in ("gp", "mobo")

    @property
    def begins_with_defaults(self) -> bool:
        """Return whether the defaults of all methods are tried first; random search stays even."""
        return self.name != "random"

    def make(self, trials: int, space: Space, limits: Sequence[Limit] = ()) -> BaseSampler:
        """Return the sampler of Optuna.

        Args:
            trials: How many the study shall have.
            space: What may be drawn.
            limits: The budget.
        """
        # All their configurations are tried first, and need not be drawn.
        finished = finished_methods(space)
        startup = max(1, min(STARTUP, trials // 4))
        # Optuna marks groups of parameters as experimental.
        with quiet():
            if self.name == "improvement":
                return ImprovementSampler(space, limits, finished, self.seed, startup)
            if self.name == "tpe":
                settings = TPESampler(multivariate=True, group=True, n_startup_trials=startup, seed=self.seed)
                return MethodBandit(settings, finished, self.seed)
            if self.name == "gp":
                return GPSampler(n_startup_trials=startup, seed=self.seed)
            if self.name == "mobo":
                return MOBOSampler(startup=startup, seed=self.seed)
        return RandomSampler(self.seed)


def silence() -> None:
    """Let Optuna print errors alone; the search prints its own progress."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
