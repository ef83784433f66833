"""The outputs of an exported file: their names, their meaning, and their values for a prediction."""

import math

from torch import Tensor

from pluribus.calibration_record import Calibration
from pluribus.export.interval import mixture_interval
from pluribus.prediction import ContinuousPrediction, DiscretePrediction, GaussianPrediction, Prediction

MEANINGS = {
    "probabilities": "mean of the members' probabilities; of a yes-no question, the probability of yes",
    "labels": "index of the most probable class; of a yes-no question, 1 for yes",
    "confidence": "probability of the label",
    "entropy": "total uncertainty in nats: the entropy of the probabilities",
    "expected_entropy": "uncertainty from the data in nats: the mean of the members' entropies",
    "mutual_information": "uncertainty from the model in nats: how far the members disagree",
    "mean": "mean of the members' means",
    "variance": "variance of the prediction: that of the data and that between members",
    "aleatoric": "variance from the data: the mean of the members' variances",
    "epistemic": "variance from the model: the variance between the members' means",
}
"""By name, the meaning of each summary that is exported; a prediction has some of them."""
INTERVAL = {
    "lower": "lower end of the interval with the level of the description",
    "upper": "upper end of the interval with the level of the description",
}
SET = {"set": "for each outcome, whether it is in the set; sets hold the truth with the description's level"}
FLAGGED = {
    "ood_score": "how strange the sample is, by the score of the calibration",
    "flagged": "whether the sample is stranger than the threshold of the calibration",
}
MEMBERS = {"members": "raw outputs of each member, members first"}


def meanings(
    prediction: type[Prediction], members: bool, calibration: Calibration | None = None
) -> dict[str, str]:
    """Return the outputs for one kind of prediction by their names, each with its meaning.

    Args:
        prediction: The class of what the likelihood makes.
        members: Whether the outputs of all members are exported too.
        calibration: Of the ensemble; None if it has none.
    """
    found = {name: text for name, text in MEANINGS.items() if hasattr(prediction, name)}
    has_sets = calibration is not None and calibration.quantile is not None
    if issubclass(prediction, DiscretePrediction):
        found |= SET if has_sets else {}
    # Without a model of noise there is no interval but a calibrated one.
    elif has_sets or issubclass(prediction, GaussianPrediction):
        found |= INTERVAL
    if calibration is not None and calibration.threshold is not None:
        found |= FLAGGED
    if members:
        found |= MEMBERS
    return found


def level_of(calibration: Calibration | None, level: float) -> float:
    """Return the level of sets and intervals: that of the calibration, or the one that was given."""
    if calibration is None or calibration.quantile is None or calibration.level is None:
        return level
    return calibration.level


def widening(prediction: Prediction) -> Tensor | float:
    """Return by how much a calibration moves the ends of a Gaussian's central interval."""
    calibration = prediction.calibration
    if calibration is None or calibration.quantile is None or not isinstance(prediction, GaussianPrediction):
        return 0.0
    # JSON and ONNX know infinity, but infinity times a deviation of zero would be NaN.
    if math.isinf(calibration.quantile):
        return calibration.quantile
    return calibration.quantile * prediction.std


def pooled_outputs(prediction: Prediction, names: list[str], level: float) -> dict[str, Tensor]:
    """Return the named outputs of a prediction, in operators that can be exported.

    Args:
        prediction: Of all members, calibrated if the ensemble is.
        names: Keys of `meanings`.
        level: Of the interval.
    """
    special = dict[str, Tensor]()
    if "lower" in names:
        special["lower"], special["upper"] = _interval(prediction, level)
    if "set" in names:
        assert isinstance(prediction, DiscretePrediction)
        special["set"] = prediction.sets
    outputs = dict[str, Tensor]()
    for name in names:
        value = special[name] if name in special else getattr(prediction, name)
        # ONNX gives a tensor that is two outputs one name alone.
        repeated = any(value is other for other in outputs.values())
        outputs[name] = value.clone() if repeated else value
    return outputs


def _interval(prediction: Prediction, level: float) -> tuple[Tensor, Tensor]:
    if not isinstance(prediction, GaussianPrediction):
        assert isinstance(prediction, ContinuousPrediction)
        return prediction.interval()
    low, high = mixture_interval(prediction.means, prediction.variances, prediction.weights, level)
    moved = widening(prediction)
    return low - moved, high + moved
