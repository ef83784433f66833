"""Glossary: text of the page, escaped, with its terms explained where they first stand."""

import html
import re

from pluribus.metrics import METRICS

# The meaning of a term; shown under it wherever it stands in running text.
GLOSSARY = {
    **{row.title: row.explanation for row in METRICS.values() if row.against == "target"},
    "mutual information": "How far the members disagree, in nats: 0 where all say the same. It is the part "
    "of the uncertainty that more data could remove.",
    "entropy": "How spread out the predicted probabilities are, in nats: 0 where one class is certain.",
    "AUROC": "How often a sample of the kind to find scores higher than another: 1 always, 0.5 by chance.",
    "deferred": "Answered by somebody else, because no answer was sure enough for its cost.",
    "95 % interval": "Test samples and seeds were drawn again a thousand times; 95 % of the differences lay "
    "in it. Where it holds 0, chance may have made the difference.",
    "standard error": "How far the mean over seeds may be from that of many seeds; ± in the table.",
    "coverage": "The share of samples that are answered, the surest first.",
}
# Longer terms first: `class-conditional ECE` is no `ECE`.
_LONGEST_FIRST = sorted(GLOSSARY, key=len, reverse=True)
TERMS = re.compile(
    r"(?<!\w)(" + "|".join(re.escape(html.escape(term)) for term in _LONGEST_FIRST) + r")(?!\w)"
)


def escaped(value: str) -> str:
    """Return text that HTML shows as it is, in elements and in attributes."""
    return html.escape(value, quote=True)


def breakable(value: str) -> str:
    """Return an escaped name that may be broken where its words end, so that tables stay narrow."""
    return escaped(value).replace("_", "_<wbr>").replace("(", "<wbr>(")


def term(name: str, meaning: str) -> str:
    """Return a term that shows its meaning under the pointer."""
    return f'<span class="term" tabindex="0" data-tip="{escaped(meaning)}">{escaped(name)}</span>'


def glossed(name: str) -> str:
    """Return a term of the glossary that shows its meaning under the pointer."""
    return term(name, GLOSSARY[name])


def explained(text: str) -> str:
    """Return escaped running text with its terms explained, each where it first stands."""
    seen: set[str] = set()

    def explain(found: re.Match[str]) -> str:
        name = html.unescape(found[0])
        if name in seen:
            return found[0]
        seen.add(name)
        return glossed(name)

    return TERMS.sub(explain, escaped(text))
