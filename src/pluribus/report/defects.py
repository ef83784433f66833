"""Defects that `doctor` found in the runs of a group: sentences, and their card on the page."""

from collections.abc import Mapping, Sequence

from pluribus.report.glossary import escaped
from pluribus.report.groups import Group

MOST_ALIKE = 3
"""Configurations with the same defect that have a sentence each; more would fill the page."""


def found_defects(group: Group) -> list[str]:
    """Return one sentence for each defect of a configuration, with its seeds and the remedy.

    A defect of more than `MOST_ALIKE` configurations has one sentence: its first case, and the other names.
    """
    by_code: dict[str, dict[str, str]] = {}
    for entry in group.entries:
        for code in dict.fromkeys(one["code"] for run in entry.runs for one in run.findings):
            cases = [(run.seed, one) for run in entry.runs for one in run.findings if one["code"] == code]
            seeds = ", ".join(dict.fromkeys(str(seed) for seed, _ in cases))
            _, first = cases[0]
            sentence = f"{entry.label}, seed {seeds}: {first['message']}. {first['remedy']}"
            by_code.setdefault(code, {})[entry.label] = sentence
    return [sentence for sentences in by_code.values() for sentence in _shortened(sentences)]


def _shortened(sentences: Mapping[str, str]) -> list[str]:
    """Return the sentences on one defect, by name of configuration, as one where there are too many."""
    if len(sentences) <= MOST_ALIKE:
        return list(sentences.values())
    _, *others = sentences
    first = next(iter(sentences.values()))
    return [f"{first} The same was found in {len(others)} others: {', '.join(others)}."]


def defects_card(sentences: Sequence[str]) -> str:
    """Return the card with these sentences; nothing if there are none."""
    if not sentences:
        return ""
    items = "".join(f"<li>{escaped(sentence)}</li>" for sentence in sentences)
    return f'<div class="card findings"><h2>What looks wrong</h2><ul>{items}</ul></div>'
