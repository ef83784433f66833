"""Price list: the best configuration for each budget, so that a reader sees at once what more cost buys.

A budget limits multiply-adds and time alike. A packed ensemble that has 1.2 times the multiply-adds of the
single network and takes 4 times as long costs 4 times as much.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pluribus.report.budget import Limit
from pluribus.report.columns import Column, columns_of
from pluribus.report.groups import Entry, Group
from pluribus.report.judging import best_first, judge_of
from pluribus.report.noise import Difference, difference
from pluribus.report.rivals import is_worse

BUDGETS = (1.0, 1.5, 4.0, math.inf)
"""Multiples of the cost of the single network."""
# Time is measured, and changes from one measurement to the next.
TIME_TOLERANCE = 1.1
# Numbers are stored rounded: a cost that equals the budget keeps it.
ROUNDING = 1 + 1e-9
SECOND = ("accuracy", "dice", "rmse")
"""A quality that everybody knows, shown beside the one that decides: the first that a group has."""


@dataclass(frozen=True)
class Offer:
    """The best configuration within a budget.

    Attributes:
        budget: A multiple of the single network's cost; infinite without a limit.
        entry: The configuration.
        multiply_adds: Its multiply-adds over those of the single network.
        time: Its time over that of the single network; NaN where it was not measured.
        gap: Its quality less that of the single network; None where that is not known, or for itself.
        verdict: The gap in words.
    """

    budget: float
    entry: Entry
    multiply_adds: float
    time: float
    gap: Difference | None
    verdict: str

    @property
    def title(self) -> str:
        """Return the budget as text."""
        return "any" if math.isinf(self.budget) else f"{self.budget:g} ×"


@dataclass(frozen=True)
class PriceList:
    """Offers by rising budget.

    Attributes:
        judge: The quality that decides.
        second: Another quality; None where there is none.
        offers: One for each budget that something fits.
    """

    judge: Column
    second: Column | None
    offers: tuple[Offer, ...]


def make_price_list(group: Group, metric: str | None = None) -> PriceList | None:
    """Return the best configuration for each budget; None where costs or qualities are not known."""
    judge = judge_of(group, metric)
    if judge is None:
        return None
    costs = {entry.label: _costs(entry, group) for entry in group.entries}
    offers = []
    for budget in BUDGETS:
        within = [entry for entry in group.entries if _fits(*costs[entry.label], budget)]
        ranked = best_first(within, judge)
        if ranked:
            offers.append(_offer(budget, ranked[0], costs[ranked[0].label], judge, group))
    if not offers:
        return None
    names = {column.name: column for column in columns_of(group)}
    second = next((names[name] for name in SECOND if name in names and name != judge.name), None)
    return PriceList(judge, second, tuple(offers))


def _costs(entry: Entry, group: Group) -> tuple[float, float]:
    """Return multiply-adds and time over those of the single network."""
    # The most does not matter: only the cost is read.
    multiply_adds = Limit("multiply_adds", math.inf, True).cost(entry, group)
    return multiply_adds, Limit("latency", math.inf, True).cost(entry, group)


def _fits(multiply_adds: float, time: float, budget: float) -> bool:
    """Return whether a configuration keeps a budget; a time that was not measured does not count."""
    if math.isnan(multiply_adds):
        return False
    if multiply_adds > budget * ROUNDING:
        return False
    return math.isnan(time) or time <= budget * TIME_TOLERANCE


def _offer(budget: float, entry: Entry, costs: Sequence[float], judge: Column, group: Group) -> Offer:
    gap = None
    verdict = "not known"
    if entry is group.single:
        verdict = "it is the single network"
    elif group.single is not None:
        gap = difference(entry, group.single, judge.name)
        verdict = _verdict(gap, judge)
    return Offer(budget, entry, costs[0], costs[1], gap, verdict)


def _verdict(gap: Difference | None, judge: Column) -> str:
    """Return how a configuration compares with the single network, in a few words."""
    if gap is None:
        return "not known"
    if gap.within_noise:
        return "may be chance"
    return "worse" if is_worse(judge, gap) else "better"
