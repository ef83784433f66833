"""Threshold: answer yes where its probability reaches a threshold that was chosen on validation data.

Youden, "Index for rating diagnostic tests", Cancer 3, 1950. Of all thresholds of the validation data the one
with the greatest

    J = sensitivity + specificity - 1                                             (1)

is taken, halfway between the two probabilities that it parts; of equal ones that nearest to 1/2. On test data

    sensitivity = P(yes answered | yes),    specificity = P(no answered | no)     (2)
    balanced accuracy = (sensitivity + specificity) / 2                           (3)

are honest numbers, because the threshold has not seen them. Yes is outcome 1 of two.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from pluribus.metrics.bootstrap import (
    Array,
    Interval,
    has_independent_samples,
    known_mean,
    percentile_interval,
    share_of,
)
from pluribus.metrics.samples import exact, samples
from pluribus.prediction import DiscretePrediction, Prediction


def two_names(class_names: Sequence[str]) -> tuple[str, str]:
    """Return the names of two classes, or their numbers where they have no names."""
    no, yes = class_names if len(class_names) == 2 else ("0", "1")
    return no, yes


def rates_in_words(class_names: Sequence[str] = ()) -> dict[str, str]:
    """Return the names of the rates at a threshold, with their meaning.

    >>> rates_in_words(["benign", "malignant"])["sensitivity"]
    'Share of the samples of class malignant that are found.'
    """
    no, yes = two_names(class_names)
    return {
        "sensitivity": f"Share of the samples of class {yes} that are found.",
        "specificity": f"Share of the samples of class {no} that are left alone.",
        "balanced_accuracy": "Mean of sensitivity and specificity.",
    }


@dataclass(frozen=True)
class Threshold:
    """The probability of yes from which on the answer is yes, in [0, 1]."""

    value: float

    @classmethod
    def fit(cls, prediction: Prediction, target: Tensor) -> "Threshold | None":
        """Return the best threshold of Eq. (1); None unless there are two outcomes, and targets of both."""
        if not has_two_outcomes(prediction):
            return None
        scores, positive = _yes(prediction, target)
        if positive.all() or not positive.any():
            return None
        order = np.argsort(-scores, kind="stable")
        descending, kind = scores[order], positive[order]
        # A threshold parts different scores: after the last of equal ones.
        ends = np.flatnonzero(np.r_[descending[1:] != descending[:-1], True])
        sensitivity = kind.cumsum()[ends] / kind.sum()
        specificity = 1 - (~kind).cumsum()[ends] / (~kind).sum()
        # Below the least score there is nothing but 0.
        middles = (descending[ends] + np.r_[descending[ends[1:]], 0.0]) / 2
        best = np.lexsort((np.abs(middles - 0.5), -(sensitivity + specificity)))[0]
        return cls(float(middles[best]))

    def rates(self, prediction: Prediction, target: Tensor) -> dict[str, float]:
        """Compute Eq. (2) and (3) by name; NaN where no target is yes, or none is no."""
        answered, positive = self._answers(prediction, target)
        found = {
            "sensitivity": float(answered[positive].mean()) if positive.any() else float("nan"),
            "specificity": float(1 - answered[~positive].mean()) if (~positive).any() else float("nan"),
        }
        return found | {"balanced_accuracy": (found["sensitivity"] + found["specificity"]) / 2}

    def intervals(self, prediction: Prediction, target: Tensor) -> dict[str, Interval]:
        """Return the bootstrap intervals of the rates by name, over the test samples.

        Nothing is returned for dense predictions, several labels, and more than 50,000 samples.
        """
        if not has_independent_samples(target):
            return {}
        answered, positive = self._answers(prediction, target)
        sensitivity, specificity = share_of(answered, positive), share_of(~answered, ~positive)
        statistics = {
            "sensitivity": sensitivity,
            "specificity": specificity,
            "balanced_accuracy": known_mean([sensitivity, specificity]),
        }
        return {name: percentile_interval(one, len(answered)) for name, one in statistics.items()}

    def _answers(self, prediction: Prediction, target: Tensor) -> tuple[Array, Array]:
        """Return which samples are answered yes, and which are yes."""
        scores, positive = _yes(prediction, target)
        return scores >= self.value, positive


def has_two_outcomes(prediction: Prediction) -> bool:
    """Return whether a prediction is a choice between two outcomes."""
    if not isinstance(prediction, DiscretePrediction):
        return False
    return prediction.member_log_probabilities.shape[2] == 2


def _yes(prediction: Prediction, target: Tensor) -> tuple[Array, Array]:
    """Return the probability of yes of each sample, and which samples are yes."""
    assert isinstance(prediction, DiscretePrediction)
    flat, target = samples(prediction, target)
    return exact(flat.log_probabilities[:, 1].exp()).numpy(), exact(target).numpy() == 1
