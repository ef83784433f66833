"""The outputs of an exported file: their names, their meaning, and their values for a prediction."""

from torch import Tensor

from pluribus.export.interval import mixture_interval
from pluribus.prediction import GaussianPrediction, Prediction

MEANINGS = {
    "probabilities": "mean of the members' probabilities; of a yes-no question, the probability of yes",
    "labels": "index of the most probable class; of a yes-no question, 1 for yes",
    "confidence": "probability of the label",
    "entropy": "total uncertainty in nats: the entropy of the probabilities",
    "expected_entropy": "uncertainty from the data in nats: the mean of the members' entropies",
    "mutual_information": "uncertainty from the model in nats: entropy minus expected_entropy",
    "mean": "mean of the members' means",
    "variance": "variance of the prediction: that of the data and that between members",
    "aleatoric": "variance from the data: the mean of the members' variances",
    "epistemic": "variance from the model: the variance between the members' means",
}
"""By name, the meaning of each summary that is exported; a prediction has some of them."""
INTERVAL = {
    "lower": "lower end of the central interval with the level of the description",
    "upper": "upper end of the central interval with the level of the description",
}
MEMBERS = {"members": "raw outputs of each member, members first"}


def meanings(prediction: type[Prediction], members: bool) -> dict[str, str]:
    """Return the outputs for one kind of prediction by their names, each with its meaning.

    Args:
        prediction: The class of what the likelihood makes.
        members: Whether the outputs of all members are exported too.
    """
    found = {name: text for name, text in MEANINGS.items() if hasattr(prediction, name)}
    if issubclass(prediction, GaussianPrediction):
        found |= INTERVAL
    if members:
        found |= MEMBERS
    return found


def pooled_outputs(prediction: Prediction, names: list[str], level: float) -> dict[str, Tensor]:
    """Return the named outputs of a prediction, in operators that can be exported.

    Args:
        prediction: Of all members.
        names: Keys of `meanings`.
        level: Of the interval.
    """
    ends = dict[str, Tensor]()
    if isinstance(prediction, GaussianPrediction):
        lower, upper = mixture_interval(prediction.means, prediction.variances, prediction.weights, level)
        ends = {"lower": lower, "upper": upper}
    outputs = dict[str, Tensor]()
    for name in names:
        value = ends[name] if name in ends else getattr(prediction, name)
        # ONNX gives a tensor that is two outputs one name alone.
        repeated = any(value is other for other in outputs.values())
        outputs[name] = value.clone() if repeated else value
    return outputs
