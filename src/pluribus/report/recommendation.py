"""Recommendation: which configuration to take within a budget, and what that rests on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pluribus.report.budget import COSTS, Limit
from pluribus.report.calibrated_choice import calibrated_choice
from pluribus.report.columns import Column
from pluribus.report.decision_costs import decision_costs
from pluribus.report.groups import Entry, Group
from pluribus.report.judging import best_first, judge_of
from pluribus.report.rivals import WORSE, Rival, make_rival
from pluribus.report.sentences import against_single, as_good, best_of, beyond_budget, nothing_fits, price
from pluribus.report.single_calibration import single_calibrated
from pluribus.report.trust import trust

# A ratio such as 1.5 is stored rounded: a limit that it equals is kept.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Recommendation:
    """The configuration to take.

    Args:
        group: The configurations that were compared.
        limits: The budget.
        judge: The quality judged by.
        choice: The best within the budget; None where nothing is.
        rivals: The others within it that have the quality, best first.
        over: Those beyond it, with the reason.
    """

    group: Group
    limits: tuple[Limit, ...]
    judge: Column | None
    choice: Entry | None
    rivals: tuple[Rival, ...] = ()
    over: tuple[tuple[Entry, str], ...] = ()

    @property
    def alike(self) -> tuple[Rival, ...]:
        """Return those that may be as good: all but those that are worse beyond chance."""
        return tuple(rival for rival in self.rivals if rival.verdict != WORSE)

    @property
    def title(self) -> str:
        """Return the answer in a line."""
        if self.choice is None:
            return "Nothing to recommend"
        names = [rival.entry.label for rival in self.alike]
        if not names:
            return f"Take {self.choice.label}"
        others = names[0] if len(names) == 1 else f"{len(names)} others"
        return f"Take {self.choice.label}; {others} may be as good"

    @cached_property
    def calibration(self) -> tuple[str, ...]:
        """Return what calibration does to the single network and to the choice."""
        told = tuple(single_calibrated(self.group))
        if self.choice is None or self.judge is None:
            return told
        within = [self.choice, *(rival.entry for rival in self.rivals)]
        return *told, *calibrated_choice(self.choice, self.judge, self.group, within)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """Return why to take it, what it costs, and how far to trust it."""
        if self.choice is None or self.judge is None:
            return (nothing_fits(self.group, self.limits, len(self.over)), *beyond_budget(self.over))
        return (
            best_of(self.choice, self.judge, len(self.rivals) + 1, self.limits),
            *against_single(self.choice, self.judge, self.group),
            *self.calibration,
            *as_good(self.rivals, self.judge),
            *price(self.choice, self.group),
            *decision_costs(self.choice),
            *trust(self.choice),
            *beyond_budget(self.over),
        )


def recommend(group: Group, limits: tuple[Limit, ...] = (), metric: str | None = None) -> Recommendation:
    """Return the configuration of the best quality within a budget.

    Args:
        group: What to choose from.
        limits: The budget; what is not known to keep it is beyond it.
        metric: The quality, by its name in `columns_of`; by default the expected cost where costs are
            given, the NLL, or RMSE where there is none.

    Raises:
        SettingError: no configuration of the group has the metric.
    """
    within, over = [], []
    for entry in group.entries:
        reason = _excess(entry, group, limits)
        if reason:
            over.append((entry, reason))
        else:
            within.append(entry)
    judge = judge_of(group, metric)
    if judge is None or not within:
        return Recommendation(group, limits, judge, None, over=tuple(over))
    ranked = best_first(within, judge)
    if not ranked:
        return Recommendation(group, limits, None, None, over=tuple(over))
    choice, *others = ranked
    rivals = tuple(make_rival(entry, choice, judge, group) for entry in others)
    return Recommendation(group, limits, judge, choice, rivals, tuple(over))


def _excess(entry: Entry, group: Group, limits: Sequence[Limit]) -> str:
    """Return why a configuration is beyond the budget; empty where it is not."""
    reasons = []
    for limit in limits:
        cost = limit.cost(entry, group)
        if math.isnan(cost):
            reasons.append(f"{COSTS[limit.name]} not known")
        elif cost > limit.most * (1 + ROUNDING):
            reasons.append(f"{COSTS[limit.name]} {cost:.3g}{' ×' if limit.relative else ''}")
    return ", ".join(reasons)
