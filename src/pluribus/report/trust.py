"""Trust: what the uncertainty of a configuration is worth, in a sentence."""

from collections.abc import Iterator, Sequence

import numpy as np

from pluribus.comparison.outcomes import Array
from pluribus.report.groups import Entry
from pluribus.report.wording import percent


def trust(entry: Entry) -> Iterator[str]:
    """Yield what the uncertainty of a configuration is worth, from its outcomes."""
    # Older records have no outcomes beside them.
    columns = [run.outcomes.columns for run in entry.runs if run.outcomes is not None]
    if not columns:
        return
    if all("confidence" in one for one in columns):
        yield _confidence_kept(columns)
    elif all("low" in one for one in columns):
        yield _intervals_kept(columns)


def _confidence_kept(columns: Sequence[dict[str, Array]]) -> str:
    """Return how far confidence and accuracy lie apart, averaged over seeds."""
    sure = float(np.mean([one["confidence"].mean() for one in columns]))
    right = float(np.mean([(one["label"] == one["target"]).mean() for one in columns]))
    word = "too sure" if sure > right else "too careful"
    return (
        f"On test data it is {percent(sure)} sure on average and right in {percent(right)} of cases: "
        f"{word} by {abs(sure - right) * 100:.1f} points."
    )


def _intervals_kept(columns: Sequence[dict[str, Array]]) -> str:
    """Return how many targets the intervals hold, averaged over seeds."""
    shares = []
    for one in columns:
        inside = (one["low"] <= one["target"]) & (one["target"] <= one["high"])
        shares.append(inside.mean())
    return f"Its 95 % intervals hold {percent(float(np.mean(shares)))} of the test targets."
