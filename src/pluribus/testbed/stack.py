"""Stack: one ensemble for each of several problems, whose weights lie together in one tensor.

All problems start from the same weights, as in the authors' code. An optimizer that works element by element,
as Adam, trains the stack exactly as it would train each ensemble alone, in one step for all.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from pluribus.ensemble import Ensemble
from pluribus.mechanisms.members.index import Row
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.prior import WithPrior


class Stack:
    """Copies of an ensemble whose parameters are views of `values`.

    Args:
        ensemble: Copied.
        count: How many problems there are.

    Attributes:
        ensembles: One for each problem; they follow every step of an optimizer on `values`.
        values: By name in `ensemble.members`, what is trained, `[problems, ...]`.
    """

    def __init__(self, ensemble: Ensemble, count: int) -> None:
        self.ensembles = [copy.deepcopy(ensemble) for _ in range(count)]
        self.values: dict[str, nn.Parameter] = {}
        for name, parameter in ensemble.members.named_parameters():
            if parameter.requires_grad:
                self.values[name] = nn.Parameter(torch.stack([parameter.detach()] * count))
        for place, one in enumerate(self.ensembles):
            for name, parameter in one.members.named_parameters():
                if name in self.values:
                    parameter.data = self.values[name].data[place]

    @property
    def template(self) -> Ensemble:
        """Return one of the ensembles, for everything but its weights."""
        return self.ensembles[0]

    def outputs(
        self, rows: Sequence[Row], x: Tensor, size: int, progress: float
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs of learnt members, `[problems, rows, batch]`, and penalties, `[problems]`.

        Args:
            rows: Of training; the same for all problems.
            x: `[problems, batch, inputs]`.
            size: Of the training set.
            progress: How much of training is done, in [0, 1].
        """
        whole = _Whole(self.template)

        def of_one(values: Mapping[str, Tensor], batch: Tensor) -> tuple[Tensor, Tensor]:
            named = {f"members.{name}": value for name, value in values.items()}
            found: tuple[Tensor, Tensor] = functional_call(whole, named, (rows, batch, size, progress))
            return found

        found: tuple[Tensor, Tensor] = vmap(of_one, randomness="different")(dict(self.values), x)
        return found


class _Whole(nn.Module):
    """Everything that a training step computes with an ensemble's weights, as one module.

    Args:
        ensemble: Whose members and method these are.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self.members, self._method = ensemble.members, ensemble.method

    def forward(self, rows: Sequence[Row], x: Tensor, size: int, progress: float) -> tuple[Tensor, Tensor]:
        """Return the outputs of learnt members, `[rows, batch]`, and the method's penalty."""
        penalty = self._method.penalty(self.members, len(x), size, progress)
        return run(learnt(self.members), rows, x), torch.as_tensor(penalty, dtype=x.dtype)


def learnt(members: Members | WithPrior) -> Members:
    """Return the members that learn, without their prior."""
    return members.learnt if isinstance(members, WithPrior) else members


def run(members: Members, rows: Sequence[Row], x: Tensor) -> Tensor:
    """Return the outputs of some rows, `[rows, batch]`, by one batched call of the network."""
    module = members.code.caller.module
    shared, own = _row_tensors(members, rows)

    def of_row(tensors: dict[str, Tensor]) -> Tensor:
        outputs: Tensor = functional_call(module, {**shared, **tensors}, (x,))
        return outputs.squeeze(-1)

    if not own:
        return torch.stack([of_row({}) for _ in rows])
    found: Tensor = vmap(of_row, randomness="different")(own)
    return found


def _row_tensors(members: Members, rows: Sequence[Row]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tensors that rows share, and those that they have for themselves, `[rows, ...]`."""
    tensors = members.tensors
    if tensors.stacks(rows):
        return tensors.parts()[0], tensors.stacked()
    each = list(tensors.of(rows))
    shared, own = dict[str, Tensor](), dict[str, Tensor]()
    for name, first in each[0].items():
        values = [one[name] for one in each]
        if all(value is first for value in values):
            shared[name] = first
        else:
            own[name] = torch.stack(values)
    # A single row has nothing that differs.
    return shared, own
