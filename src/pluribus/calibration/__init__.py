"""Corrections fitted on validation data: temperature, conformal sets and intervals, flags of strange samples.

`ensemble.calibrate(data)` fits all of them and keeps them with the ensemble. The functions here fit them one
by one.
"""

from pluribus.calibration.conformal import ConformalIntervals, ConformalSets, conformal_quantile
from pluribus.calibration.temperature import fit_temperature, with_temperature
from pluribus.calibration_record import Calibration

__all__ = [
    "Calibration",
    "ConformalIntervals",
    "ConformalSets",
    "conformal_quantile",
    "fit_temperature",
    "with_temperature",
]
