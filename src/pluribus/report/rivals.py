"""Rivals: configurations compared with the recommended one, in quality and in cost."""

from dataclasses import dataclass

from pluribus.report.columns import Cell, Column, columns_of
from pluribus.report.groups import Entry, Group
from pluribus.report.noise import Difference, difference
from pluribus.report.wording import listed

# Costs that are counted, in words. Time is left out: it changes from one measurement to the next.
COUNTED = {"parameters": "parameters", "multiply_adds": "multiply-adds"}
# Costs that differ by less than a thousandth are the same.
SAME_COST = 1e-3

WORSE, BETTER = "worse", "better on shared seeds"
UNKNOWN, CHANCE = "not known", "may be chance"


@dataclass(frozen=True)
class Rival:
    """Another configuration within the budget, compared with the recommended one.

    Args:
        entry: The other one.
        cell: Its quality.
        gap: Its quality less that of the recommended one; None where that is not known.
        behind: Whether the gap speaks against it.
        cheaper: The costs that it saves, in words; empty where it does not cost less.
    """

    entry: Entry
    cell: Cell
    gap: Difference | None
    behind: bool
    cheaper: str = ""

    @property
    def verdict(self) -> str:
        """Return the verdict over the seeds that both have; these may favour one that all seeds do not."""
        if self.gap is None:
            return UNKNOWN
        if self.gap.within_noise:
            return CHANCE
        return WORSE if self.behind else BETTER


def make_rival(entry: Entry, choice: Entry, judge: Column, group: Group) -> Rival:
    """Compare a configuration with the recommended one."""
    gap = difference(entry, choice, judge.name)
    behind = gap is not None and is_worse(judge, gap)
    return Rival(entry, judge.cell(entry), gap, behind, _saving(entry, choice, group))


def is_worse(column: Column, gap: Difference) -> bool:
    """Return whether a difference is for the worse."""
    return (gap.value > 0) is column.lower_is_better


def _saving(entry: Entry, choice: Entry, group: Group) -> str:
    """Return the costs of a configuration below those of the choice; empty where some cost is higher."""
    lower = []
    for column, name in cost_ratios(group):
        own, chosen = column.cell(entry).mean, column.cell(choice).mean
        if own > chosen * (1 + SAME_COST):
            return ""
        if own < chosen * (1 - SAME_COST):
            lower.append(f"{own:.2f} × the {name}")
    return listed(lower)


def cost_ratios(group: Group) -> list[tuple[Column, str]]:
    """Return the columns of counted costs over those of the single network, with their names in words."""
    found = []
    for column in columns_of(group):
        if column.is_cost and column.name in COUNTED and column.title.endswith("×"):
            found.append((column, COUNTED[column.name]))
    return found
