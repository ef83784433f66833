"""Anytime prediction: every sample leaves the network at the first exit that is sure enough."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.likelihood import Categorical, Likelihood
from pluribus.mechanisms.graph.cost import Meter
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.engines import run_watched
from pluribus.prediction import DiscretePrediction, Prediction


class Leaving:
    """Collect the outputs of exits, and decide which samples leave the network.

    Rows of exits that a sample did not reach get the mean prediction of those that it did, so that means over
    rows are those over the exits it reached.

    Args:
        rows: Pairs of an input and a depth.
        weights: How much each counts, `[rows]`.
        likelihood: Turns outputs into probabilities.
        sure: The probability of a class at which a sample leaves.
        batch: How many samples there are.
    """

    def __init__(
        self,
        rows: Sequence[tuple[int, int]],
        weights: Tensor,
        likelihood: Likelihood,
        sure: float,
        batch: int,
    ) -> None:
        self.depths = torch.tensor([depth for _, depth in rows], device=weights.device)
        # The first exits alone may all have the weight 0, and a mean over them would divide by it.
        self.weights = weights.clamp(min=torch.finfo(weights.dtype).tiny)
        self.likelihood, self.sure = likelihood, sure
        self.present = torch.arange(batch, device=weights.device)
        self.left_at = torch.full_like(self.present, int(self.depths.max()))
        self.members: Tensor | None = None

    def __call__(self, depth: int, outputs: Tensor) -> Tensor:
        """Return the mask of the samples that continue, among those that are present.

        Args:
            depth: The depth of the exit they have reached.
            outputs: Its outputs, `[present, rows of this depth, ...]`.
        """
        if self.members is None:
            shape = (len(self.depths), len(self.present), *outputs.shape[2:])
            self.members = outputs.new_zeros(shape)
        here, before = (self.depths == depth).nonzero()[:, 0], self.depths <= depth
        self.members[here[:, None], self.present] = outputs.transpose(0, 1).to(self.members)
        weights = self.weights[before] / self.weights[before].sum()
        prediction = self.likelihood.prediction(self.members[before][:, self.present], weights)
        assert isinstance(prediction, DiscretePrediction)
        # A picture with a class for each pixel goes on while one of them is unsure.
        goes_on = (prediction.confidence < self.sure).reshape(len(self.present), -1).any(1)
        leaving, later = self.present[~goes_on], (~before).nonzero()[:, 0]
        self.members[later[:, None], leaving] = prediction.probabilities[~goes_on].log().to(self.members)
        self.left_at[leaving] = depth
        self.present = self.present[goes_on]
        return goes_on


def predict_anytime(
    members: AnyMembers,
    likelihood: Likelihood,
    rows: Sequence[Any],
    weights: Tensor,
    inputs: Inputs,
    sure: float,
) -> Prediction:
    """Return the prediction for one batch, with the multiply-adds that each sample took.

    Args:
        members: All exits.
        likelihood: Turns outputs into probabilities of classes.
        rows: The rows.
        weights: How much each counts, `[rows]`.
        inputs: One batch.
        sure: The probability of a class at which a sample leaves.
    """
    if not members.code.one_pass or not isinstance(likelihood, Categorical):
        found = f"outputs that are {likelihood}" if members.code.one_pass else "a network without exits"
        raise InputError(
            f"exit_when needs classes and a network with exits, such as EarlyExit, got {found}. Leave it out."
        )
    prices = _prices(members, rows, inputs.take(slice(0, 1)))
    leaving = Leaving(rows, weights, likelihood, sure, inputs.batch)
    try:
        run_watched(members, rows, inputs, leaving)
    except InputError as error:
        # Before anybody left, the error has another reason.
        if len(leaving.present) == inputs.batch:
            raise
        raise InputError(
            "a network must go on when samples have left, got an error: it keeps something of the whole "
            f"batch, as its size or a mask ({error.__cause__ or error}). Use chunk=1, where a sample goes on "
            "alone, or no exit_when."
        ) from error
    assert leaving.members is not None
    spent = torch.tensor([prices[depth] for depth in leaving.left_at.tolist()], device=weights.device)
    return replace(likelihood.prediction(leaving.members, weights), spent=spent)


def _prices(members: AnyMembers, rows: Sequence[tuple[int, int]], one: Inputs) -> dict[int, int]:
    """Map each depth to the multiply-adds of one sample up to its exit; cached by the size of inputs."""
    key, cache = f"prices of {rows} on {one}", members.code.caller.cache
    if key not in cache:
        prices: dict[int, int] = {}
        with Meter() as meter:

            def watch(depth: int, outputs: Tensor) -> None:
                prices[depth] = meter.multiply_adds

            run_watched(members, rows, one, watch)
        cache[key] = prices
    prices = cache[key]
    return prices
