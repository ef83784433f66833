"""Frozen: all members of an ensemble for inference alone."""

import itertools
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from pluribus.calibration_record import Calibration
from pluribus.likelihood import Likelihood
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.network.error_context import blaming_inputs
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.engines import run_rows
from pluribus.mechanisms.running.explain import Explanation, explain
from pluribus.mechanisms.running.no_compile import uncompiled
from pluribus.mechanisms.running.specialised import SpecialisedMembers
from pluribus.prediction import Prediction
from pluribus.ranges import check


class FrozenRows(nn.Module):
    """All rows of eval mode, `[rows, batch, ...]`, without gradients."""

    def __init__(self, members: AnyMembers) -> None:
        super().__init__()
        self.members = members

    def train(self, mode: bool = True) -> Self:
        """Stay in eval mode whatever is asked."""
        self.members.train(False)
        return super().train(False)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the outputs of all rows."""
        return run_rows(self.members, self.members.index.rows(training=False), Inputs(args, kwargs))


class Frozen(nn.Module):
    """All members for inference: `frozen(x)` is `[members, batch, ...]`, always in eval mode.

    Attributes:
        network: What computes them.
        notes: What became part of what, or why nothing did.
        likelihood: What the outputs mean.
        calibration: Corrects predictions as those of the ensemble; None if nothing was calibrated.
    """

    calibration: Calibration | None = None

    def __init__(
        self, network: FrozenRows | SpecialisedMembers, notes: Sequence[str], likelihood: Likelihood
    ) -> None:
        super().__init__()
        self.network: FrozenRows | SpecialisedMembers = network
        self.notes, self.likelihood = tuple(notes), likelihood
        self.train(False)

    def train(self, mode: bool = True) -> Self:
        """Stays in eval mode whatever is asked."""
        return super().train(False)

    @uncompiled
    @torch.no_grad()
    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The outputs of all members, `[members, batch, ...]`."""
        outputs: Tensor = self.network(*args, **kwargs)
        return outputs

    def predict(self, x: Any, *, chunk: int | None = None) -> Prediction:
        """Return the prediction of all members, as the ensemble's own `predict`.

        Args:
            x: The inputs: a tensor, a tuple, or a dict of keyword inputs.
            chunk: At most that many samples at a time, to bound the memory of activations.
        """
        check("chunk", chunk, int, at_least=1, optional=True)
        predictions = []
        for inputs in Inputs.of(x).chunks(chunk):
            with blaming_inputs(inputs):
                outputs = self(*inputs.args, **inputs.keywords)
                predictions.append(self.likelihood.prediction(outputs, self.weights))
        return type(predictions[0]).concatenate(predictions).calibrated(self.calibration)

    @property
    def weights(self) -> Tensor:
        """How much each member counts, `[members]`; sums to one."""
        if isinstance(self.network, SpecialisedMembers):
            members = len(self.network.members)
            weights = torch.full((members,), 1 / members)
        else:
            weights = self.network.members.index.weights()
        tensors = itertools.chain(self.parameters(), self.buffers())
        return weights.to(next((tensor.device for tensor in tensors), weights.device))

    def explain(self, x: Any) -> Explanation:
        """Return what the rows of `frozen(x)` share, where they differ, and what that saves."""
        if isinstance(self.network, SpecialisedMembers):
            return Explanation(len(self.network.members), "they are cut out by their masks")
        members = self.network.members
        return explain(members, members.index.rows(training=False), Inputs.of(x))
