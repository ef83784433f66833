"""Predicting: the one way from inputs to a prediction, of live and of frozen ensembles."""

from collections.abc import Callable, Iterable

import torch

from pluribus.errors import InputError
from pluribus.mechanisms.network.error_context import blaming_inputs
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.prediction import Prediction


def predict_parts(
    batches: Iterable[Inputs], chunk: int | None, predict: Callable[[Inputs], Prediction]
) -> Prediction:
    """Return the prediction for all batches, without gradients.

    Args:
        batches: The inputs.
        chunk: At most that many samples at a time; None is a whole batch.
        predict: Returns the prediction for some samples.

    Raises:
        InputError: There is no batch, or inputs are not finite.
    """
    predictions = list[Prediction]()
    with torch.no_grad():
        for batch in batches:
            parts = [batch] if chunk is None else batch.chunks(chunk)
            for inputs in parts:
                with blaming_inputs(inputs):
                    predictions.append(predict(inputs))
    if not predictions:
        raise InputError("a loader must give at least one batch, got none.")
    if len(predictions) == 1:
        return predictions[0]
    return type(predictions[0]).concatenate(predictions)
