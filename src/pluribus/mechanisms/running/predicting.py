"""Predicting: the one way from inputs to a prediction, of live and of frozen ensembles."""

from collections.abc import Callable, Iterable

import torch

from pluribus.errors import InputError
from pluribus.mechanisms.network.error_context import blame_inputs
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.prediction import Prediction
from pluribus.summary import MEMBERS, Keep, Summary, collect


def predict_parts(
    parts: Iterable[Inputs],
    predict: Callable[[Inputs], Prediction],
    total: int | None = None,
    keep: Keep = MEMBERS,
) -> Prediction | Summary:
    """Return the prediction for all parts, without gradients.

    Args:
        parts: The inputs, some samples at a time.
        predict: Returns the prediction for some samples.
        total: How many samples there are in all; None if that is not known.
        keep: `members`, `summary` or names of summaries.

    Raises:
        InputError: There is no part, or inputs are not finite.
    """

    def predicted(inputs: Inputs) -> Prediction:
        try:
            return predict(inputs)
        except InputError as error:
            blame_inputs(inputs, error)
            raise

    with torch.no_grad():
        return collect(map(predicted, parts), total, keep)
