"""Frozen: all members of an ensemble for inference alone."""

import itertools
from collections.abc import Sequence
from typing import Any, Literal, Self, overload

import torch
from torch import Tensor, nn

from pluribus.calibration_record import Calibration
from pluribus.errors import InputError, PluribusError
from pluribus.likelihood import Likelihood
from pluribus.mechanisms.members.caller import CAUGHT
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.network.error_context import blaming_inputs, explain_failure
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.engines import run_rows
from pluribus.mechanisms.running.explain import Explanation, explain
from pluribus.mechanisms.running.no_compile import uncompiled
from pluribus.mechanisms.running.pieces import MOST_BYTES, cut
from pluribus.mechanisms.running.specialised import SpecialisedMembers
from pluribus.prediction import Prediction
from pluribus.ranges import check
from pluribus.summary import Keep, Summary, collect


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
        self._counted: dict[str, Any] = {}
        self.train(False)

    def train(self, mode: bool = True) -> Self:
        """Stays in eval mode whatever is asked."""
        return super().train(False)

    @uncompiled
    @torch.no_grad()
    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The outputs of all members, `[members, batch, ...]`."""
        inputs = Inputs(args, kwargs)
        # Raise for inputs without a batch before the network fails on them.
        _ = inputs.batch
        try:
            outputs: Tensor = self.network(*args, **kwargs)
        except (PluribusError, torch.OutOfMemoryError):
            raise
        # Members that were cut out run as graphs, which raise errors of torch.
        except CAUGHT as error:
            raise InputError(explain_failure(self.network, self.network, inputs, error)) from error
        return outputs

    @overload
    def predict(
        self,
        x: Any,
        *,
        chunk: int | None = None,
        keep: Literal["members"] = "members",
        most_bytes: int = MOST_BYTES,
    ) -> Prediction: ...

    @overload
    def predict(
        self, x: Any, *, chunk: int | None = None, keep: Keep, most_bytes: int = MOST_BYTES
    ) -> Prediction | Summary: ...

    def predict(
        self,
        x: Any,
        *,
        chunk: int | None = None,
        keep: Keep = "members",
        most_bytes: int = MOST_BYTES,
    ) -> Prediction | Summary:
        """Return the prediction of all members, as the ensemble's own `predict`.

        Args:
            x: The inputs: a tensor, a tuple, or a dict of keyword inputs.
            chunk: At most that many samples at a time, to bound the memory of activations.
            keep: `members`, `summary` or names of summaries, as for the ensemble.
            most_bytes: Without `chunk`, the most bytes of activations at a time.
        """
        check("chunk", chunk, int, at_least=1, optional=True)
        check("most_bytes", most_bytes, int, at_least=1)
        weights, whole = self.weights, Inputs.of(x)

        def outputs(inputs: Inputs) -> Tensor:
            found: Tensor = self(*inputs.args, **inputs.keywords)
            return found

        def predicted(inputs: Inputs) -> Prediction:
            with blaming_inputs(inputs):
                found = self.likelihood.prediction(outputs(inputs), weights)
                return found.calibrated(self.calibration)

        pieces = cut(whole, chunk, most_bytes, outputs, self._counted)
        return collect(map(predicted, pieces), whole.batch, keep)

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
