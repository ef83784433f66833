"""Pooling: the outcomes of all seeds of a configuration, one after the other."""

import numpy as np

from pluribus.outcomes import Array
from pluribus.report.groups import Entry


def pooled(entry: Entry, names: tuple[str, ...]) -> tuple[Array, ...]:
    """Columns by name, each `[seeds × samples]`; nothing if a run lacks one."""
    found = [run.outcomes.columns if run.outcomes else {} for run in entry.runs]
    if any(name not in columns for columns in found for name in names):
        return ()
    return tuple(np.concatenate([columns[name] for columns in found]) for name in names)
