"""Objectives: what a search makes better, measured on validation data.

nll, ece, accuracy, rmse, ...               any metric, of the raw prediction
scaled_nll, scaled_ece, ...                 the same after calibration
parameters, multiply_adds, latency, ...     any cost
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pluribus.comparison.calibrated import SCALED
from pluribus.errors import SettingError
from pluribus.metrics import METRICS
from pluribus.ranges import nearest, show

CALIBRATED = "scaled_"
COSTS = {
    "parameters": "parameters",
    "multiply_adds": "multiply-adds",
    "weight_bytes": "bytes of weights",
    "peak_activation_bytes": "bytes of activations",
    "latency": "time",
}
"""Costs, in words. All are better lower."""
KEYS = {"latency": "latency_ratio"}
"""Names of costs in records, where they differ: time is measured as a multiple of the single network's."""


@dataclass(frozen=True)
class Objective:
    """One number that a search makes better.

    Attributes:
        name: Of a metric, of a metric after calibration, or of a cost.
        higher: Whether more is better.
        is_cost: Whether it is a cost.
    """

    name: str
    higher: bool = False
    is_cost: bool = False

    @property
    def title(self) -> str:
        """Return its name for a reader."""
        if self.is_cost:
            return COSTS[self.name]
        plain = self.name.removeprefix(CALIBRATED)
        return METRICS[plain].title + " calibrated" * (plain != self.name)

    @property
    def direction(self) -> str:
        """Return the word of Optuna for its direction."""
        return "maximize" if self.higher else "minimize"

    def read(
        self, metrics: Mapping[str, float], calibrated: Mapping[str, float], cost: Mapping[str, float]
    ) -> float:
        """Return its value among those of a run; NaN if it was not measured."""
        if self.is_cost:
            return cost.get(KEYS.get(self.name, self.name), math.nan)
        source = calibrated if self.name.startswith(CALIBRATED) else metrics
        return source.get(self.name, math.nan)

    def loss(self, value: float) -> float:
        """Return a value of which less is better."""
        return -value if self.higher else value


def all_objectives() -> dict[str, Objective]:
    """Return everything that a search can make better, by name."""
    found = {}
    for name, metric in METRICS.items():
        if metric.against == "target":
            found[name] = Objective(name, metric.direction == "higher")
    for name in SCALED:
        found[f"{CALIBRATED}{name}"] = Objective(f"{CALIBRATED}{name}", METRICS[name].direction == "higher")
    return found | {name: Objective(name, is_cost=True) for name in COSTS}


def parse_objectives(names: str | Sequence[str]) -> tuple[Objective, ...]:
    """Return the objectives of a text such as `nll,ece,multiply_adds`, or of a list of names.

    Raises:
        SettingError: one is unknown or named twice, or none is a quality.

    >>> [one.name for one in parse_objectives("nll,multiply_adds")]
    ['nll', 'multiply_adds']
    """
    words = names.split(",") if isinstance(names, str) else list(names)
    chosen = [word.strip() for word in words if word.strip()]
    known = all_objectives()
    for name in chosen:
        if name not in known:
            raise SettingError(f"objectives are {', '.join(known)}, got {show(name)}." + nearest(name, known))
    if len(set(chosen)) != len(chosen):
        raise SettingError(f"each objective is given once, got {', '.join(chosen)}.")
    found = tuple(known[name] for name in chosen)
    # Costs alone would be best for the smallest network, whatever it predicts.
    if all(one.is_cost for one in found):
        raise SettingError(
            f"objectives must hold a quality such as nll, got {', '.join(chosen) or 'none'}. Add one."
        )
    return found
