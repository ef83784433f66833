"""Budget: what a user can pay, as `multiply_adds<=1.5x,parameters<=2e6`."""

import math
import re
from dataclasses import dataclass

from pluribus.errors import SettingError
from pluribus.ranges import nearest
from pluribus.report.columns import summarise
from pluribus.report.groups import Entry, Group

# What a budget may limit, in words.
COSTS = {
    "parameters": "parameters",
    "multiply_adds": "multiply-adds",
    "latency": "time",
    "weight_bytes": "bytes of weights",
    "peak_activation_bytes": "bytes of activations",
}
UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
# Name, sign, number, unit, and x for a multiple. `<` is read too, so that the message can correct it.
LIMIT = re.compile(r"(\w+)\s*(<=?)\s*([\d.]+(?:[eE][+-]?\d+)?)\s*([kMG]?)\s*([x×]?)")


@dataclass(frozen=True)
class Limit:
    """The most that one cost may be; a multiple of the single network's if `relative`."""

    name: str
    most: float
    relative: bool

    def __str__(self) -> str:
        return f"{COSTS[self.name]} ≤ {self.most:,.10g}{' ×' if self.relative else ''}"

    def cost(self, entry: Entry, group: Group) -> float:
        """Return the cost of a configuration as the limit counts it; NaN where no run has it."""
        own = _mean_cost(entry, self.name)
        if not self.relative:
            return own
        ratio = _mean_cost(entry, f"{self.name}_ratio")
        if not math.isnan(ratio) or group.single is None:
            return ratio
        # Runs made without the single network have no ratio: the group may have that network.
        base = _mean_cost(group.single, self.name)
        return own / base if base else math.nan


def _mean_cost(entry: Entry, name: str) -> float:
    """Return a cost of a configuration, averaged over its runs; NaN where none has it."""
    return summarise(run.cost.get(name, math.nan) for run in entry.runs).mean


def parse_budget(text: str) -> tuple[Limit, ...]:
    """Read the limits in a text; an empty one has none.

    Raises:
        SettingError: the text is no budget.

    >>> [str(limit) for limit in parse_budget("multiply_adds<=1.5x, parameters<=2M")]
    ['multiply-adds ≤ 1.5 ×', 'parameters ≤ 2,000,000']
    """
    limits = []
    for part in text.split(","):
        # A comma at the end is no limit.
        if part.strip():
            limits.append(_limit(part.strip()))
    return tuple(limits)


def _limit(text: str) -> Limit:
    """Read one limit, and raise with the text that was meant where it is none."""
    parts = LIMIT.fullmatch(text)
    if not parts:
        raise SettingError(
            f"a budget must be written as multiply_adds<=1.5x,parameters<=2M, got {text!r}. "
            "x stands for times the single network; k, M and G for thousands, millions and billions."
        )
    name, sign, number, unit, times = parts.groups()
    if name not in COSTS:
        raise SettingError(
            f"a budget must limit one of {', '.join(COSTS)}, got {name!r}." + nearest(name, COSTS)
        )
    if sign == "<":
        raise SettingError(
            f"the most that a cost may be must be written with <=, got {text!r}. "
            f"Write {name}<={number}{unit}{times}."
        )
    # Seconds depend on the machine, and on what else it does.
    if name == "latency" and not times:
        raise SettingError(
            f"time must be a multiple of the single network's, got {text!r}. Write latency<={number}x."
        )
    try:
        return Limit(name, float(number) * UNITS[unit], bool(times))
    except ValueError as error:
        raise SettingError(f"a limit must be a number, got {number!r} in {text!r}.") from error
