"""Pooling: the outcomes of all seeds of a configuration, one after the other."""

import numpy as np

from pluribus.comparison.outcomes import Array
from pluribus.report.groups import Entry


def pooled(entry: Entry, names: tuple[str, ...]) -> tuple[Array, ...]:
    """Columns by name, each `[seeds × samples]`, of finite samples; nothing if a run lacks one."""
    found = [run.outcomes.columns if run.outcomes else {} for run in entry.runs]
    if any(name not in columns for columns in found for name in names):
        return ()
    joined = [np.concatenate([columns[name] for columns in found]) for name in names]
    finite = np.logical_and.reduce([np.isfinite(values) for values in joined])
    return tuple(values[finite] for values in joined) if finite.any() else ()
