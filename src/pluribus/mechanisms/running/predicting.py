"""Predicting: the one way from inputs to a prediction, of live and of frozen ensembles."""

from collections.abc import Callable, Iterable, Iterator

import torch

from pluribus.mechanisms.network.error_context import blaming_inputs
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.prediction import Prediction
from pluribus.summary import MEMBERS, Keep, Summary, collect


def predict_parts(
    batches: Iterable[Inputs],
    chunk: int | None,
    predict: Callable[[Inputs], Prediction],
    total: int | None = None,
    keep: Keep = MEMBERS,
) -> Prediction | Summary:
    """Return the prediction for all batches, without gradients.

    Args:
        batches: The inputs.
        chunk: At most that many samples at a time; None is a whole batch.
        predict: Returns the prediction for some samples.
        total: How many samples there are in all; None if that is not known.
        keep: `members`, `summary` or names of summaries.

    Raises:
        InputError: There is no batch, or inputs are not finite.
    """
    with torch.no_grad():
        return collect(_predictions(batches, chunk, predict), total, keep)


def _predictions(
    batches: Iterable[Inputs], chunk: int | None, predict: Callable[[Inputs], Prediction]
) -> Iterator[Prediction]:
    """Yield the predictions for all parts, one after the other."""
    for batch in batches:
        parts = [batch] if chunk is None else batch.chunks(chunk)
        for inputs in parts:
            with blaming_inputs(inputs):
                prediction = predict(inputs)
            yield prediction
