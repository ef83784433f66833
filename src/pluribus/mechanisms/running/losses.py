"""Losses: compute per-member losses of a batch, before the method combines them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.likelihood import Likelihood
from pluribus.mechanisms.members.axis import fork, join
from pluribus.mechanisms.members.index import Row
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.members.skeleton import Modes
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.engines import run_apart, run_rows
from pluribus.mechanisms.running.sample_weights import weighted_mean

Criterion = Callable[[Tensor, Tensor], Tensor]
"""Callback (outputs of one member, targets) -> a scalar, or one value per sample."""


class Losses:
    """Compute the losses of rows.

    Args:
        likelihood: Whose loss it is.
        criterion: In its place, a loss of one member's outputs and the targets.
    """

    def __init__(self, likelihood: Likelihood, criterion: Criterion | None) -> None:
        if criterion is not None and not callable(criterion):
            raise InputError(
                f"criterion must be a function of outputs and targets, got {criterion!r}. "
                "Pass a function such as torch.nn.functional.cross_entropy, or leave it out."
            )
        self.likelihood, self.criterion = likelihood, criterion

    def of_batch(
        self,
        members: AnyMembers,
        rows: Sequence[Row],
        inputs: Inputs,
        y: Tensor,
        modes: Modes,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the mean loss of each row on all samples, `[rows]`; `weights` as in `check_weights`."""
        outputs = run_rows(members, rows, inputs, modes)
        return weighted_mean(self._each(outputs, y, weights), weights)

    def of_parts(
        self,
        members: AnyMembers,
        rows: Sequence[Row],
        inputs: Inputs,
        y: Tensor,
        parts: Sequence[Tensor],
        modes: Modes,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the mean loss of each row on the samples that it sees, `[rows]`.

        Args:
            members: All members.
            rows: The rows.
            inputs: One batch.
            y: Its targets.
            parts: By row, the positions of the samples that it sees.
            modes: By row, whether it runs in train mode.
            weights: Of the samples, as in `check_weights`.
        """
        outputs = run_apart(members, rows, [inputs.take(part) for part in parts], modes)
        shapes = {output.shape[1:] for output in outputs}
        # One call for all parts is faster. A criterion may average, so it sees each part alone.
        if self.criterion is None and len(shapes) == 1 and weights is None:
            found = self._each(fork(torch.cat(outputs), 1), y[torch.cat(list(parts))])[0]
            each = torch.split(found, [len(part) for part in parts])
            return torch.stack([losses.mean() for losses in each])
        means = list[Tensor]()
        for output, part in zip(outputs, parts, strict=True):
            counted = None if weights is None else weights[part]
            losses = self._each(fork(output, 1), y[part], counted)
            means.append(weighted_mean(losses, counted)[0])
        return torch.stack(means)

    def _each(self, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return losses of the rows, `[rows, batch]`, or `[rows]` for a criterion that averages.

        Args:
            outputs: `[rows, batch, ...]`.
            y: The targets of the batch.
            weights: Of the samples or of their positions.
        """
        if self.criterion is not None:
            return _of_criterion(self.criterion, outputs, y, weights)
        if weights is None or weights.ndim == 1:
            return self.likelihood.losses(outputs, y)
        return self.likelihood.losses(outputs, y, weights)


def _of_criterion(criterion: Criterion, outputs: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
    """Return the losses that a user's criterion computes, checked."""
    losses = [criterion(output, y) for output in outputs]
    for loss in losses:
        if not isinstance(loss, Tensor) or loss.shape not in ((), (len(y),)):
            found = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise InputError(
                f"criterion must return a scalar or one value per sample, [{len(y)}], got {found}. "
                "Average over all other axes."
            )
    if weights is not None and (weights.ndim > 1 or losses[0].ndim == 0):
        raise InputError(
            "weights need a criterion that returns one value per sample, and one weight for each, got "
            f"{'an average' if losses[0].ndim == 0 else 'weights of positions'}. Use reduction='none'."
        )
    return join(losses)
