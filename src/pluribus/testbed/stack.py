"""Stack: one ensemble for each of several problems, whose weights lie together in one tensor.

All problems start from the same weights, as in the authors' code. An optimizer that works element by element,
as Adam, trains the stack exactly as it would train each ensemble alone, in one step for all.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from pluribus.ensemble import Ensemble
from pluribus.mechanisms.members.index import Row
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.prior import WithPrior
from pluribus.method import Method
from pluribus.methods.hypermodel import Directions


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

    def outputs(self, rows: Sequence[Row], x: Tensor) -> Tensor:
        """Return the outputs of learnt members, `[problems, rows, batch]`.

        Args:
            rows: Of training; the same for all problems.
            x: `[problems, batch, inputs]`.
        """

        def of_one(values: Mapping[str, Tensor], batch: Tensor) -> Tensor:
            outputs: Tensor = self._with(values, lambda members: run(learnt(members), rows, batch))
            return outputs

        # A row that has a name draws the same numbers in every problem: its prior and its targets follow from
        # them. Under vmap they would differ from problem to problem even where a generator draws them.
        randomness = "different" if None in rows else "same"
        found: Tensor = vmap(of_one, randomness=randomness)(dict(self.values), x)
        return found

    def penalties(self, batch: int, size: int, progress: float) -> Tensor:
        """Return the method's penalty of each problem, `[problems]`.

        Args:
            batch: Samples of a step.
            size: Of the training set.
            progress: How much of training is done, in [0, 1].
        """
        method, count = self.template.method, len(self.ensembles)
        if type(method).penalty is Method.penalty:
            return torch.zeros(count, device=self.template.device)
        found = list[Tensor]()
        # One after the other: methods look for parameters with gradients, which vmap hides.
        for place in range(count):
            values = {name: value[place] for name, value in self.values.items()}
            penalty = self._with(values, lambda members: method.penalty(members, batch, size, progress))
            found.append(torch.as_tensor(penalty, device=self.template.device))
        return torch.stack(found)

    def _with(self, values: Mapping[str, Tensor], task: Callable[[Any], Any]) -> Any:
        """Return what a task computes with members that hold these values."""
        named = {f"members.{name}": value for name, value in values.items()}
        return functional_call(_Holder(self.template.members), named, (task,))


class _Holder(nn.Module):
    """Members as a module whose call runs any task with them.

    Args:
        members: Of an ensemble.
    """

    def __init__(self, members: Members | WithPrior) -> None:
        super().__init__()
        self.members = members

    def forward(self, task: Callable[[Any], Any]) -> Any:
        """Return the task's result."""
        return task(self.members)


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
    if isinstance(tensors, Directions):
        # Hundreds of draws for a step: one product for each tensor, not one for each row too.
        return tensors.parts()[0], tensors.draw_all(rows)
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
