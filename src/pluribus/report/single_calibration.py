"""Calibration of the single network in a sentence: it may help more than an ensemble, or not at all."""

import math
from collections.abc import Iterator

from pluribus.report.columns import Column, columns_of
from pluribus.report.groups import Entry, Group

SMALL_ECE = 0.05
"""Calibration error up to which a network is called calibrated."""
SMALL_GAIN = 0.01
"""Nats that a calibration must gain to be worth a recommendation, or lose to be worth a warning."""


def single_calibrated(group: Group) -> Iterator[str]:
    """Yield what calibration does to the NLL of the single network, if both numbers are known."""
    if group.single is None:
        return
    columns = {column.name: column for column in columns_of(group)}
    for name in ("nll", "gaussian_nll"):
        raw, calibrated = columns.get(name), columns.get(f"calibrated_{name}")
        if raw is None or calibrated is None:
            continue
        before, after = raw.cell(group.single).mean, calibrated.cell(group.single).mean
        numbers = f"NLL {before:.3f} raw, {after:.3f} calibrated"
        if math.isnan(before - after):
            continue
        if before - after < -SMALL_GAIN:
            yield (
                f"Calibration does not help the single network: {numbers}. Give it more validation data, or "
                "use raw predictions, prediction.raw in Python."
            )
        elif before - after < SMALL_GAIN:
            yield _unchanged(numbers, columns.get("calibrated_ece"), group.single)
        else:
            yield f"Calibration alone helps the single network: {numbers}. Compare calibrated numbers."


def _unchanged(numbers: str, errors: Column | None, single: Entry) -> str:
    """Return the sentence on a calibration that changes nothing: there was no need, or it was held back."""
    error = math.nan if errors is None else errors.cell(single).mean
    if error <= SMALL_ECE:
        return f"On clean data the single network is calibrated already: {numbers}."
    told = f"Calibration changes little for the single network: {numbers}"
    # Without corrupted data, as in tables, probabilities are never made sharper.
    return f"{told}." if math.isnan(error) else f"{told}, ECE {error:.3f}."
