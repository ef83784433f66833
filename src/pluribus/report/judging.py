"""Judging: by which quality configurations are compared, and in which order they come."""

import math
from collections.abc import Sequence

from pluribus.errors import SettingError
from pluribus.ranges import invalid, nearest
from pluribus.report.columns import Column, all_columns, columns_of
from pluribus.report.groups import Entry, Group

# The quality to judge by unless the user names one: the first that a group has. Whoever gives costs wants to
# keep them low. NLL comes next because it measures answers and uncertainty at once.
JUDGES = ("expected_cost", "nll", "gaussian_nll", "rmse")


def qualities(group: Group, measured: bool = True) -> dict[str, Column]:
    """Return the columns that a group can be judged by; all that there may be if not `measured`."""
    columns = columns_of(group) if measured else all_columns(group)
    return {column.name: column for column in columns if not column.is_cost}


def check_metric(metric: str | None) -> None:
    """Raise where no group can be judged by a metric, before anything is run.

    Raises:
        SettingError: it is no quality.
    """
    names = qualities(Group("", "", "", ()), measured=False)
    if metric is not None and metric not in names:
        raise invalid("metric", f"one of {', '.join(names)}", metric, names)


def judge_of(group: Group, metric: str | None) -> Column | None:
    """Return the column to judge by; None where a group has none of the usual ones.

    Raises:
        SettingError: no configuration of the group has the metric.
    """
    columns = qualities(group)
    if metric is None:
        return next((columns[name] for name in JUDGES if name in columns), None)
    if metric not in columns:
        raise SettingError(
            f"the metric to judge by must be one of {', '.join(columns)}, got {metric!r}."
            + nearest(metric, columns)
        )
    return columns[metric]


def best_first(entries: Sequence[Entry], judge: Column) -> list[Entry]:
    """Return configurations, best first; those without a number are left out."""
    known = [entry for entry in entries if not math.isnan(judge.cell(entry).mean)]
    return sorted(known, key=lambda entry: judge.cell(entry).mean, reverse=not judge.lower_is_better)
