"""Measure a calibration on test data: what it does to the scores, and whether it keeps its promises.

name                                   meaning
temperature, variance_scale            what was fitted
scaled_nll, scaled_ece, ...            a metric of the calibrated prediction; the raw one is without `scaled_`
conformal_level                        the promised share of sets or intervals that hold the truth
conformal_coverage                     the share on test data
conformal_size, conformal_width        mean number of classes in a set, mean width of an interval
false_alarm, false_alarms              the promised share of test samples that are flagged, and the share
auroc_chosen, fpr95_chosen, flagged    on data out of distribution, by the score that was chosen
"""

from torch import Tensor

from pluribus.calibration.fit import LEAST_SAMPLES
from pluribus.calibration_record import Calibration
from pluribus.data.task import Task
from pluribus.ensemble import Ensemble
from pluribus.errors import InputError
from pluribus.metrics import METRICS
from pluribus.metrics.ood import auroc, fpr95
from pluribus.metrics.samples import average, samples
from pluribus.prediction import ContinuousPrediction, DiscretePrediction, GaussianPrediction, Prediction

SCALED = ("nll", "ece", "brier", "gaussian_nll", "crps", "coverage_gap_95")
"""Metrics that are measured once more on the calibrated prediction."""
SCALED_SHIFTED = ("nll", "ece", "brier", "gaussian_nll")


def calibration_for(ensemble: Ensemble, task: Task) -> Calibration | None:
    """Return the calibration of an ensemble, or one fitted on validation data; None without such data."""
    if ensemble.calibration is not None:
        return ensemble.calibration
    if len(task.validation) < LEAST_SAMPLES:
        return None
    try:
        # Fitted weights would be gone with the calibration, and predictions have those of the method.
        return ensemble.calibrate(task, weights=False)
    except InputError:
        # Targets may be shares between no and yes, of which no set can hold one.
        return None
    finally:
        # Measuring changes nothing.
        ensemble.calibration = None


def measure_calibration(prediction: Prediction, target: Tensor) -> dict[str, float]:
    """Return the numbers of a calibration on test data; none for a raw prediction."""
    calibration = prediction.calibration
    if calibration is None or calibration.level is None or calibration.false_alarm is None:
        return {}
    found = {}
    if isinstance(prediction, DiscretePrediction):
        found["temperature"] = calibration.temperature
    if isinstance(prediction, GaussianPrediction):
        found["variance_scale"] = calibration.variance_scale
    found |= scaled_metrics(prediction, target, SCALED)
    found["conformal_level"] = calibration.level
    found |= _promises(prediction, target)
    found["false_alarm"] = calibration.false_alarm
    found["false_alarms"] = average(prediction.flagged)
    return found


def scaled_metrics(
    prediction: Prediction, target: Tensor, names: tuple[str, ...] = SCALED_SHIFTED
) -> dict[str, float]:
    """Return metrics of a calibrated prediction, with `scaled_` before their names."""
    suiting = [METRICS[name] for name in names if METRICS[name].suits(prediction)]
    return {f"scaled_{metric.name}": metric(prediction, target) for metric in suiting}


def _promises(prediction: Prediction, target: Tensor) -> dict[str, float]:
    """Return how many sets or intervals hold the truth, and how large they are."""
    prediction, target = samples(prediction, target)
    if isinstance(prediction, DiscretePrediction):
        sets = prediction.sets
        inside = sets.gather(1, target.unsqueeze(1))
        return {"conformal_coverage": average(inside), "conformal_size": average(sets.sum(1))}
    assert isinstance(prediction, ContinuousPrediction)
    low, high = prediction.interval()
    inside = (low <= target) & (target <= high)
    return {"conformal_coverage": average(inside), "conformal_width": average(high - low)}


def measure_strangers(prediction: Prediction, out: Prediction) -> dict[str, float]:
    """Return how well the chosen score finds data out of distribution; nothing without a calibration."""
    if prediction.calibration is None:
        return {}
    usual, strange = prediction.ood_score, out.ood_score
    return {
        "auroc_chosen": auroc(usual, strange),
        "fpr95_chosen": fpr95(usual, strange),
        "flagged": average(out.flagged),
    }
