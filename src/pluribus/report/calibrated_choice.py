"""Raw or calibrated: by which NLL a configuration was chosen, and which one its predictions will have."""

import math
from collections.abc import Iterator, Sequence

from pluribus.report.columns import Column, columns_of
from pluribus.report.groups import Entry, Group


def calibrated_choice(choice: Entry, judge: Column, group: Group, within: Sequence[Entry]) -> Iterator[str]:
    """Yield that the choice was made by raw numbers, and what calibrated ones would choose.

    Args:
        choice: The configuration that is recommended.
        judge: The quality that it was chosen by.
        group: All configurations.
        within: Those within the budget.
    """
    columns = {column.name: column for column in columns_of(group)}
    calibrated = columns.get(f"calibrated_{judge.name}")
    if calibrated is None or math.isnan(calibrated.cell(choice).mean):
        return
    own = calibrated.cell(choice).mean
    told = (
        f"It was chosen by the raw {judge.title}; stored ensembles predict calibrated, with "
        f"{judge.title} {own:.{judge.digits}f}."
    )
    best = choice
    for entry in within:
        if calibrated.better(calibrated.cell(entry).mean, calibrated.cell(best).mean):
            best = entry
    if best is not choice:
        mean = calibrated.cell(best).mean
        told += (
            f" After calibration {best.label} has the best: {mean:.{judge.digits}f} "
            f"(--metric {calibrated.name} chooses by it)."
        )
    yield told
