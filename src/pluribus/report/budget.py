"""Budget: what a user can pay, as `multiply_adds<=1.5x,parameters<=2e6`."""

import math
import re
from dataclasses import dataclass

from pluribus.errors import SettingError
from pluribus.report.groups import Entry, Group
from pluribus.report.tables import summarise
from pluribus.settings import nearest

COSTS = {
    "parameters": "parameters",
    "multiply_adds": "multiply-adds",
    "latency": "time",
    "weight_bytes": "bytes of weights",
    "peak_activation_bytes": "bytes of activations",
}
"""What a budget may limit, and how to say it."""
UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


@dataclass(frozen=True)
class Limit:
    """One cost, at most so much; relative to the single network if `relative`."""

    name: str
    most: float
    relative: bool

    def __str__(self) -> str:
        return f"{COSTS[self.name]} ≤ {self.most:,.10g}{' ×' if self.relative else ''}"

    def cost(self, entry: Entry, group: Group) -> float:
        """What a configuration costs, as the limit counts it; NaN where no run knows."""
        if not self.relative:
            return summarise([run.cost.get(self.name, math.nan) for run in entry.runs]).mean
        ratio = summarise([run.cost.get(f"{self.name}_ratio", math.nan) for run in entry.runs]).mean
        if not math.isnan(ratio) or group.single is None:
            return ratio
        own, base = (
            summarise([run.cost.get(self.name, math.nan) for run in one.runs]).mean
            for one in (entry, group.single)
        )
        return own / base if base else math.nan


def parse_budget(text: str) -> tuple[Limit, ...]:
    """The limits in a text; an empty one has none.

    >>> [str(limit) for limit in parse_budget("multiply_adds<=1.5x, parameters<=2M")]
    ['multiply-adds ≤ 1.5 ×', 'parameters ≤ 2,000,000']
    """
    return tuple(_limit(part.strip()) for part in text.split(",") if part.strip())


def _limit(text: str) -> Limit:
    parts = re.fullmatch(r"(\w+)\s*(<=?)\s*([\d.]+(?:[eE][+-]?\d+)?)\s*([kMG]?)\s*([x×]?)", text)
    if not parts:
        raise SettingError(
            f"a budget is written multiply_adds<=1.5x,parameters<=2M, however: {text!r}. "
            "x stands for times the single network; k, M and G for thousands, millions and billions."
        )
    name, sign, number, unit, times = parts.groups()
    if name not in COSTS:
        raise SettingError(f"a budget limits {', '.join(COSTS)}, however: {name!r}." + nearest(name, COSTS))
    if sign == "<":
        raise SettingError(
            f"a budget says what a cost may be at most, which is written <=, however: {text!r}. "
            f"Write {name}<={number}{unit}{times}."
        )
    if name == "latency" and not times:
        raise SettingError(
            f"time is known over that of the single network, however: {text!r}. Write latency<={number}x."
        )
    try:
        return Limit(name, float(number) * UNITS[unit], bool(times))
    except ValueError as error:
        raise SettingError(f"a budget holds numbers, however: {number!r} in {text!r}.") from error
