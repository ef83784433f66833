"""Pooling: the outcomes of all seeds of a configuration, one after the other."""

import numpy as np

from pluribus.comparison.outcomes import Array
from pluribus.report.groups import Entry


def pooled(entry: Entry, names: tuple[str, ...]) -> tuple[Array, ...]:
    """Return columns by name, each `[seeds × samples]`, of finite samples; nothing if a run lacks one."""
    found: list[dict[str, Array]] = []
    for run in entry.runs:
        if run.outcomes is None or not run.outcomes.columns.keys() >= set(names):
            return ()
        found.append(run.outcomes.columns)
    joined = [np.concatenate([columns[name] for columns in found]) for name in names]
    # A sample counts in all columns or in none.
    finite = np.logical_and.reduce([np.isfinite(values) for values in joined])
    if not finite.any():
        return ()
    return tuple(values[finite] for values in joined)
