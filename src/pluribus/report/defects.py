"""Defects that `doctor` found in the runs of a group, as sentences."""

from pluribus.report.groups import Group


def found_defects(group: Group) -> list[str]:
    """Return one sentence for each defect of a configuration, with its seeds and the remedy."""
    sentences = []
    for entry in group.entries:
        for code in dict.fromkeys(one["code"] for run in entry.runs for one in run.findings):
            cases = [(run.seed, one) for run in entry.runs for one in run.findings if one["code"] == code]
            seeds = ", ".join(dict.fromkeys(str(seed) for seed, _ in cases))
            _, first = cases[0]
            sentences.append(f"{entry.label}, seed {seeds}: {first['message']}. {first['remedy']}")
    return sentences
