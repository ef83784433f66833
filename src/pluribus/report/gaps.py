"""Gaps: what a group lacks that a reader would miss, in plain sentences."""

import math

from pluribus.report.groups import Entry, Group
from pluribus.report.tables import columns_of


def gaps(group: Group) -> list[str]:
    """What is missing, the gravest first; nothing where nothing is."""
    said = [f"{label}, seed {run.seed}, failed: {run.error}" for label, run in group.failures]
    if not group.entries:
        return [*said, "No run succeeded, so there is nothing to show."]
    return [*said, *_few(group), *_unmeasured(group), *_unseen(group)]


def _few(group: Group) -> list[str]:
    said = []
    if len(group.entries) == 1:
        said.append(f"There is one configuration, {group.entries[0].label}: nothing to compare it with.")
    elif group.single is None:
        said.append("The single network is not among the configurations, so nothing is compared with it.")
    seeds = {entry.label: len(entry.runs) for entry in group.entries}
    if max(seeds.values()) == 1:
        said.append("There is one seed: how much results vary between runs is not known.")
    elif len(set(seeds.values())) > 1:
        counts = ", ".join(f"{label} {count}" for label, count in seeds.items())
        said.append(f"Configurations have different numbers of seeds: {counts}.")
    return said


def _unmeasured(group: Group) -> list[str]:
    """Numbers that some runs have and others lack."""
    said = []
    for column in columns_of(group):
        without = [e.label for e in group.entries if any(math.isnan(column.value(r)) for r in e.runs)]
        if without:
            said.append(f"{column.title} is missing in runs of {', '.join(without)}.")
    return said


def _unseen(group: Group) -> list[str]:
    """What figures need and nobody has."""
    said = []
    if not any(run.shifted for run in group.records):
        said.append("Nothing was measured on shifted data.")
    if not any(run.ood for run in group.records):
        said.append("Nothing was measured on data out of distribution.")
    without = [entry.label for entry in group.entries if not _has_outcomes(entry)]
    if without:
        said.append(
            f"No outcomes lie beside the records of {', '.join(without)}: pictures of single samples, and "
            "whether differences are chance, need them. Runs made by this version have them."
        )
    return said


def _has_outcomes(entry: Entry) -> bool:
    return all(run.outcomes is not None for run in entry.runs)
