"""Check that the state of a checkpoint fits the ensemble and the optimizer that are to take it."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from pluribus.schema import Mismatch, shown

STEP = "step"
ADAM = frozenset({STEP, "exp_avg", "exp_avg_sq"})
VALUES: dict[type[Optimizer], frozenset[str]] = {torch.optim.Adam: ADAM, torch.optim.AdamW: ADAM}
"""Names of the values that optimizers need for each parameter (torch 2.6 to 2.13)."""
FILLED_IN = frozenset(
    {"amsgrad", "maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"}
)
"""Settings that torch fills in where a checkpoint of an earlier version lacks them."""
SCHEDULED = frozenset({"params", "lr", "initial_lr"})
"""Entries of a group that differ between steps, or are compared by themselves."""


def check_tensors(place: str, came: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise `Mismatch` unless names, shapes and types are those of the ensemble."""
    names = sorted(came.keys() | expected.keys())
    for name in names:
        if name not in came:
            raise Mismatch(f"field {place}.{name} is missing")
        if name not in expected:
            raise Mismatch(f"field {place}.{name} is unknown")
        _check_alike(f"{place}.{name}", came[name], expected[name])


def _check_alike(field: str, came: Tensor, expected: Tensor) -> None:
    if described(came) != described(expected):
        raise Mismatch(f"field {field} must be {described(expected)}, got {described(came)}")


def described(tensor: Tensor) -> str:
    """Return type and shape of a tensor."""
    return f"{tensor.dtype} {list(tensor.shape)}"


def check_optimizer(state: Mapping[str, Any], optimizer: Any) -> None:
    """Raise `Mismatch` unless groups, their settings and their tensors fit the optimizer of now."""
    now = [group["params"] for group in optimizer.param_groups]
    came = [group["params"] for group in state["param_groups"]]
    _check_sizes(list(map(len, came)), list(map(len, now)))
    _check_groups(state["param_groups"], optimizer.param_groups)
    wanted = next((names for kind, names in VALUES.items() if isinstance(optimizer, kind)), None)
    # Torch numbers the parameters of all groups one after the other.
    numbers = itertools.chain.from_iterable(came)
    parameters = itertools.chain.from_iterable(now)
    by_number = dict(zip(numbers, parameters, strict=True))
    for number, values in state["state"].items():
        if number not in by_number:
            raise Mismatch(f"field optimizer.state must be of known parameters, got number {number!r}")
        # Adam would fail in its next step, long after the file was read.
        if wanted is not None and values.keys() != wanted:
            raise Mismatch(f"field optimizer.state.{number} must hold {sorted(wanted)}, got {sorted(values)}")
        _check_values(number, values, by_number[number])


def _check_groups(came: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> None:
    """Raise `Mismatch` unless the settings of all groups are those of now; schedules set the rate anew."""
    for number, (before, group) in enumerate(zip(came, now, strict=False)):
        for name in sorted(group.keys() - FILLED_IN - before.keys()):
            raise Mismatch(f"field optimizer.param_groups.{number}.{name} is missing")
        for name in sorted(group.keys() & before.keys() - SCHEDULED):
            found, value = before[name], group[name]
            if type(found) is not type(value) or found != value:
                raise Mismatch(
                    f"field optimizer.param_groups.{number}.{name} must be {value!r}, got {shown(found)}"
                )


def _check_sizes(came: Sequence[int], now: Sequence[int]) -> None:
    if came != now:
        raise Mismatch(f"field optimizer.param_groups must have {now} parameters, got {came}")


def _check_values(number: int, values: Mapping[str, Any], parameter: Tensor) -> None:
    """Raise `Mismatch` for a tensor of another shape than its parameter, and for steps that are no count."""
    for name, value in values.items():
        # Optimizers without momentum keep None, and Adam its count of steps as a tensor without axes.
        if name == STEP and isinstance(value, Tensor) and value.ndim == 0:
            _check_steps(number, value)
            continue
        if value is None:
            continue
        if not isinstance(value, Tensor):
            raise Mismatch(f"field optimizer.state.{number}.{name} must be a tensor, got {shown(value)}")
        if value.shape != parameter.shape:
            raise Mismatch(
                f"field optimizer.state.{number}.{name} must have shape {list(parameter.shape)}, "
                f"got {list(value.shape)}"
            )


def _check_steps(number: int, steps: Tensor) -> None:
    """Raise `Mismatch` unless this may be a count of steps: Adam divides by zero after -1, and by NaN."""
    counts = not (steps.is_meta or steps.is_complex() or steps.dtype == torch.bool)
    if not counts or not 0 <= float(steps) < math.inf:
        raise Mismatch(f"field optimizer.state.{number}.{STEP} must be a count of steps, got {shown(steps)}")


def check_random(state: Tensor) -> None:
    """Raise `Mismatch` unless this is a state of torch's generator of the CPU."""
    _check_alike("random", state, torch.get_rng_state())
