"""Missing data: what a reader expects of a group and the records do not have."""

import math
from collections.abc import Callable

from pluribus.comparison.record import Record
from pluribus.report.columns import Column, columns_of
from pluribus.report.groups import Entry, Group

# Characters of an error that are shown; the whole is in the records.
LONGEST = 300


def missing(group: Group) -> list[str]:
    """Return sentences about what is missing, the gravest first."""
    said = [f"{label}, seed {run.seed}, failed: {_short(run.error)}" for label, run in group.failures]
    if not group.entries:
        return [*said, "No run succeeded, so there is nothing to show."]
    return [*said, *_few(group), *_unmeasured(group), *_unseen(group)]


def _short(error: str) -> str:
    return error if len(error) <= LONGEST else f"{error[:LONGEST]}…"


def _few(group: Group) -> list[str]:
    """Return which configurations and seeds are missing."""
    said = []
    if len(group.entries) == 1:
        said.append(f"There is one configuration, {group.entries[0].label}: nothing to compare it with.")
    elif group.single is None:
        said.append("The single network is not among the configurations, so nothing is compared with it.")
    said += _seeds(group)
    for entry in group.entries:
        if entry.repeated:
            twice = ", ".join(map(str, entry.repeated))
            said.append(f"{entry.label} has several runs of seed {twice}: the last of each is shown.")
    return said


def _seeds(group: Group) -> list[str]:
    """Return which seeds are missing: noise between seeds needs several, and pairs need the same."""
    said = []
    seeds = {entry.label: [run.seed for run in entry.runs] for entry in group.entries}
    if max(map(len, seeds.values())) == 1:
        said.append("There is one seed: how much results vary between runs is not known.")
    if len({tuple(own) for own in seeds.values()}) > 1:
        told = "; ".join(f"{label} {', '.join(map(str, own))}" for label, own in seeds.items())
        said.append(f"Configurations have different seeds: {told}.")
    return said


def _unmeasured(group: Group) -> list[str]:
    """Return the numbers that some runs have and others lack."""
    said = []
    for column in columns_of(group):
        without = [entry.label for entry in group.entries if not _has_number(entry, column)]
        if without:
            said.append(f"{column.title} is missing in runs of {', '.join(without)}.")
    return said


def _has_number(entry: Entry, column: Column) -> bool:
    return all(math.isfinite(column.value(run)) for run in entry.runs)


def _unseen(group: Group) -> list[str]:
    """Return what figures need and some or all runs lack."""
    said = []
    if not any(run.shifted for run in group.records):
        said.append("Nothing was measured on shifted data.")
    if not any(run.ood for run in group.records):
        said.append("Nothing was measured on data out of distribution.")
    said += _uneven(group, "shifted data", lambda run: run.shifted)
    said += _uneven(group, "data out of distribution", lambda run: run.ood)
    without = [entry.label for entry in group.entries if not _has_outcomes(entry)]
    if without:
        said.append(
            f"No outcomes lie beside the records of {', '.join(without)}: pictures of single samples, and "
            "whether differences are chance, need them. Runs made by this version have them."
        )
    return said


def _uneven(group: Group, what: str, sets: Callable[[Record], dict[str, dict[str, float]]]) -> list[str]:
    """Return the sets that some runs were measured on, and others, measured on some, were not."""
    known: dict[str, None] = {}
    for run in group.records:
        known |= dict.fromkeys(sets(run))
    lacking = []
    for entry in group.entries:
        # A run that was measured on none is missing as a whole, and not in the averages.
        own = [sets(run) for run in entry.runs if sets(run)]
        names = [name for name in known if any(name not in one for one in own)]
        if names:
            lacking.append(f"{entry.label} lacks {', '.join(names)}")
    if not lacking:
        return []
    return [f"Averages over {what} are over different sets: {'; '.join(lacking)}."]


def _has_outcomes(entry: Entry) -> bool:
    return all(run.outcomes is not None for run in entry.runs)
