"""The column of decisions of `pluribus predict --costs`: the answer to each input, or that it is deferred."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from pluribus.errors import SettingError
from pluribus.likelihood import Bernoulli, Likelihood
from pluribus.metrics.costs import DEFERRED, Costs, decide
from pluribus.prediction import DiscretePrediction, Prediction

COLUMN = "decision"
DEFER = "defer"
"""The decision of an input that somebody else should look at."""


def names_of_outcomes(likelihood: Likelihood, classes: int | None, class_names: Sequence[str]) -> list[str]:
    """Return the names of all answers, which are numbers where classes have no names.

    Raises:
        SettingError: Numbers are predicted.
    """
    outcomes = 2 if isinstance(likelihood, Bernoulli) else classes
    if outcomes is None:
        raise SettingError("costs must be of classes, got an ensemble that predicts numbers. Leave them out.")
    if len(class_names) == outcomes:
        return list(class_names)
    return [str(number) for number in range(outcomes)]


def costs_in_words(costs: Costs, names: Sequence[str]) -> str:
    """Return what costs mean for classes of these names; of two classes, the second is the one to be found.

    Raises:
        SettingError: `miss` and `alarm` are given for more than two classes.

    >>> costs_in_words(Costs(miss=10, alarm=1, defer=0.5), ["benign", "malignant"])
    'costs: 10 for the answer benign where malignant is right, 1 for the opposite, 0.5 for deferring'
    """
    matrix = costs.matrix(len(names))
    parts = [f"{costs.wrong:g} for a wrong answer"]
    if len(names) == 2:
        parts = [
            f"{matrix[1, 0]:g} for the answer {names[0]} where {names[1]} is right",
            f"{matrix[0, 1]:g} for the opposite",
        ]
    if costs.defer is not None:
        parts.append(f"{costs.defer:g} for deferring")
    return f"costs: {', '.join(parts)}"


def decisions(prediction: Prediction, costs: Costs, names: Sequence[str]) -> list[str]:
    """Return the answer that costs least for each input, or `DEFER`, from calibrated probabilities.

    Raises:
        SettingError: There is no single answer for an input, but one for each position or label.
    """
    if not isinstance(prediction, DiscretePrediction) or prediction.log_probabilities.ndim != 2:
        raise SettingError("costs must be of one answer for each input, got several. Leave them out.")
    answers = decide(prediction.log_probabilities.double().exp().cpu().numpy(), costs)
    return [DEFER if answer == DEFERRED else names[answer] for answer in np.asarray(answers).tolist()]


def counts_in_words(decided: Counter[str], order: Iterable[str]) -> str:
    """Return how often each decision was taken, as `2 benign, 1 defer`."""
    return ", ".join(f"{decided[name]} {name}" for name in (*order, DEFER) if decided[name])
