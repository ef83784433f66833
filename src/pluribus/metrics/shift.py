"""Shift: how much corrupted inputs cost, against what they cost a vanilla network.

Hendrycks & Dietterich, "Benchmarking neural network robustness to common corruptions and
perturbations", ICLR 2019; with a vanilla network as the reference in Chang et al., "Ensemble model
patching", 2019, App. D.4.

    CE_c = Σ_s E_cs / Σ_s E'_cs                                                   (1)
    rCE_c = Σ_s (E_cs - E_clean) / Σ_s (E'_cs - E'_clean)                         (2)
    mCE = mean_c CE_c,    rmCE = mean_c rCE_c                                     (3)

    symbol   here
    E, E'    top-1 errors of the model and of the vanilla network: model, vanilla
    c, s     corruption, severity

Values are ratios: 1 for the vanilla network itself, which the papers print as 100. Deviation: the patching
paper prints E_clean for E'_clean in the denominator of (2), a misprint of Hendrycks & Dietterich's.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from pluribus.errors import InputError
from pluribus.metrics.metric import Metric

# Errors that differ do so by one over the size of the test set, which is far more.
ROUNDING = 1e-9


@dataclass(frozen=True)
class ShiftErrors:
    """Top-1 errors of one model, each one less its accuracy, in [0, 1].

    Args:
        clean: On the test set as it is.
        corrupted: On its corruptions by name, one error per severity.

    """

    clean: float
    corrupted: Mapping[str, Sequence[float]]

    def __post_init__(self) -> None:
        empty = [name for name, errors in self.corrupted.items() if not len(errors)]
        if empty or not self.corrupted:
            raise InputError(
                "there must be at least 1 corruption with at least 1 severity each, "
                f"got {f'{empty[0]} has none' if empty else 'no corruption'}. Evaluate on shifted data."
            )
        for name, errors in {"clean": [self.clean], **self.corrupted}.items():
            wrong = [error for error in errors if not 0 <= error <= 1]
            if wrong:
                raise InputError(
                    f"errors must lie in 0 to 1, got {wrong[0]:g} for {name}. Divide percentages by 100."
                )


def corruption_errors(model: ShiftErrors, vanilla: ShiftErrors) -> dict[str, float]:
    """Compute Eq. (1) by corruption, each in [0, ∞]."""
    return _ratios(model, vanilla, 0, 0)


def relative_corruption_errors(model: ShiftErrors, vanilla: ShiftErrors) -> dict[str, float]:
    """Compute Eq. (2) by corruption: what it adds to the model's error over what it adds to vanilla's."""
    return _ratios(model, vanilla, model.clean, vanilla.clean)


def mean_corruption_error(model: ShiftErrors, vanilla: ShiftErrors) -> float:
    """Compute the mCE of Eq. (3), in [0, ∞]; 1 for vanilla itself."""
    return fmean(corruption_errors(model, vanilla).values())


def relative_mean_corruption_error(model: ShiftErrors, vanilla: ShiftErrors) -> float:
    """Compute the rmCE of Eq. (3); 1 for vanilla itself, 0 where corruptions cost the model nothing."""
    return fmean(relative_corruption_errors(model, vanilla).values())


def _ratios(model: ShiftErrors, vanilla: ShiftErrors, own: float, reference: float) -> dict[str, float]:
    """Sum errors over severities, each less its own baseline, and divide the model's by vanilla's."""
    ran = {name: len(errors) for name, errors in model.corrupted.items()}
    expected = {name: len(errors) for name, errors in vanilla.corrupted.items()}
    if ran != expected:
        raise InputError(
            f"both models must have run on the same corruptions and severities, got {ran} "
            f"and {expected}. Evaluate both on the same data."
        )
    ratios = {}
    for name, errors in model.corrupted.items():
        # A sum that loses nothing: its terms may cancel.
        harm = math.fsum(error - reference for error in vanilla.corrupted[name])
        if harm < ROUNDING:
            raise InputError(
                f"corruptions must cost the vanilla network something, got {harm:g} for {name}. "
                "Leave this corruption out for both models."
            )
        ratios[name] = math.fsum(error - own for error in errors) / harm
    return ratios


ROWS = (
    Metric(
        name="mean_corruption_error",
        function=mean_corruption_error,
        direction="lower",
        range=(0, math.inf),
        title="mCE",
        explanation="Error on corrupted inputs as a multiple of a vanilla network's.",
        paper="Hendrycks & Dietterich, Benchmarking neural network robustness, ICLR 2019",
        against="vanilla",
    ),
    Metric(
        name="relative_mean_corruption_error",
        function=relative_mean_corruption_error,
        direction="lower",
        range=(-math.inf, math.inf),
        title="Relative mCE",
        explanation="What corruptions add to the error, as a multiple of what they add to vanilla's.",
        paper="Hendrycks & Dietterich, Benchmarking neural network robustness, ICLR 2019",
        against="vanilla",
    ),
)
