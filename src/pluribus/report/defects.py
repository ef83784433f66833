"""Defects that `doctor` found in the runs of a group: sentences, and their card on the page."""

from collections.abc import Sequence

from pluribus.report.glossary import escaped
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


def defects_card(sentences: Sequence[str]) -> str:
    """Return the card with these sentences; nothing if there are none."""
    if not sentences:
        return ""
    items = "".join(f"<li>{escaped(sentence)}</li>" for sentence in sentences)
    return f'<div class="card findings"><h2>What looks wrong</h2><ul>{items}</ul></div>'
