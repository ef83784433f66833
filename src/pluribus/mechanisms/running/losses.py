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
        self, members: AnyMembers, rows: Sequence[Row], inputs: Inputs, y: Tensor, modes: Modes
    ) -> Tensor:
        """Return the mean loss of each row on all samples, `[rows]`."""
        outputs = run_rows(members, rows, inputs, modes)
        return self._each(outputs, y).reshape(len(rows), -1).mean(1)

    def of_parts(
        self,
        members: AnyMembers,
        rows: Sequence[Row],
        inputs: Inputs,
        y: Tensor,
        parts: Sequence[Tensor],
        modes: Modes,
    ) -> Tensor:
        """Return the mean loss of each row on the samples that it sees, `[rows]`.

        Args:
            members: All members.
            rows: The rows.
            inputs: One batch.
            y: Its targets.
            parts: By row, the positions of the samples that it sees.
            modes: By row, whether it runs in train mode.
        """
        outputs = run_apart(members, rows, [inputs.take(part) for part in parts], modes)
        shapes = {output.shape[1:] for output in outputs}
        # One call for all parts is faster. A criterion may average, so it sees each part alone.
        if self.criterion is None and len(shapes) == 1:
            found = self._each(fork(torch.cat(outputs), 1), y[torch.cat(list(parts))])[0]
            each = torch.split(found, [len(part) for part in parts])
            return torch.stack([losses.mean() for losses in each])
        means = list[Tensor]()
        for output, part in zip(outputs, parts, strict=True):
            losses = self._each(fork(output, 1), y[part])
            means.append(losses.mean())
        return torch.stack(means)

    def _each(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return losses of the rows, `[rows, batch]`, or `[rows]` for a criterion that averages.

        Args:
            outputs: `[rows, batch, ...]`.
            y: The targets of the batch.
        """
        if self.criterion is None:
            return self.likelihood.losses(outputs, y)
        losses = [self.criterion(output, y) for output in outputs]
        for loss in losses:
            if not isinstance(loss, Tensor) or loss.shape not in ((), (len(y),)):
                found = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
                raise InputError(
                    f"criterion must return a scalar or one value per sample, [{len(y)}], got {found}. "
                    "Average over all other axes."
                )
        return join(losses)
