"""Batch: inputs, targets and weights of some samples, however a dataset packs them.

sample or batch                          inputs                      target
(x, y)                                   x: a tensor, tuple or dict  y
(a, b, y)                                a and b                     y
{"input_ids": …, "labels": …}            all other entries, by name  labels, label, target or y
x                                        x                           none
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.mechanisms.network.inputs import Inputs

TARGETS = ("labels", "label", "target", "y")
"""Names of targets among the entries of a sample; the first that is there counts."""
WEIGHTS = "sample_weight"


@dataclass(frozen=True, eq=False)
class Batch:
    """Hold some samples.

    Args:
        inputs: As the network is called with them.
        y: Targets, `[batch, ...]`; None where there are none.
        weights: How much each sample counts in training, `[batch]`; None where all count alike.
    """

    inputs: Inputs
    y: Tensor | None = None
    weights: Tensor | None = None

    def __len__(self) -> int:
        return self.inputs.batch

    @property
    def x(self) -> Any:
        """Return the inputs as a user gives them: a tensor, a tuple, or a dict by name."""
        if self.inputs.keywords:
            return self.inputs.keywords
        return self.inputs.args[0] if len(self.inputs.args) == 1 else self.inputs.args

    @property
    def target(self) -> Tensor:
        """Return the targets; raise where there are none."""
        if self.y is None:
            raise InputError(
                f"samples must have a target, got {self.inputs} alone. Give pairs of input and target, or "
                f"dicts with one of {', '.join(TARGETS)}, or name the entry: Split(..., target='name')."
            )
        return self.y

    def to(self, device: torch.device) -> "Batch":
        """Return the same samples on another device."""
        # Memory that is pinned is copied while the device computes.
        y = None if self.y is None else self.y.to(device, non_blocking=True)
        weights = None if self.weights is None else self.weights.to(device)
        return Batch(self.inputs.to(device), y, weights)

    def take(self, part: slice) -> "Batch":
        """Return some of the samples."""
        y = None if self.y is None else self.y[part]
        weights = None if self.weights is None else self.weights[part]
        return Batch(self.inputs.take(part), y, weights)


@dataclass(frozen=True)
class Names:
    """Names of the entries of a sample that are no inputs.

    Args:
        target: Of the target; None looks for `TARGETS`.
        weights: Of the weight of the sample.
    """

    target: str | None = None
    weights: str = WEIGHTS

    def unpack(self, raw: Any) -> Batch:
        """Return the batch that a dataset or loader gave, told apart as in the table above."""
        if isinstance(raw, Mapping):
            return self._of_mapping(raw)
        if isinstance(raw, Tensor):
            return Batch(Inputs.of(raw))
        if not isinstance(raw, tuple | list) or not raw:
            raise InputError(
                f"samples must be tensors, tuples or dicts, got {type(raw).__name__}. "
                "Convert them with Split(..., transform=...)."
            )
        *inputs, y = raw if len(raw) > 1 else (raw[0], None)
        first = inputs[0]
        if len(inputs) > 1:
            return Batch(Inputs.of(tuple(inputs)), _tensor("targets", y))
        if isinstance(first, Mapping):
            found = self._of_mapping(first)
            return Batch(found.inputs, _tensor("targets", y), found.weights)
        # Loaders make lists of the tuples of several inputs.
        given = tuple(first) if isinstance(first, list | tuple) else first
        return Batch(Inputs.of(given), _tensor("targets", y))

    def _of_mapping(self, raw: Mapping[str, Any]) -> Batch:
        names = TARGETS if self.target is None else (self.target,)
        target = next((name for name in names if name in raw), None)
        if target is None and self.target is not None:
            raise InputError(f"samples must have the entry {self.target!r}, got {', '.join(map(str, raw))}.")
        inputs = {name: value for name, value in raw.items() if name not in (target, self.weights)}
        y = None if target is None else _tensor(target, raw[target])
        weights = _tensor(self.weights, raw.get(self.weights))
        return Batch(Inputs((), inputs), y, weights)


def _tensor(name: str, value: Any) -> Tensor | None:
    """Return a value of a batch as a tensor; None stays None."""
    if value is None or isinstance(value, Tensor):
        return value
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name} of a batch must be a tensor, got {type(value).__name__}. Convert it in collate=."
        ) from error
