"""Check that the state of a checkpoint fits the ensemble and the optimizer that are to take it."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pluribus.schema import Mismatch


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
    """Raise `Mismatch` unless groups have as many parameters as now, and their tensors the same shapes."""
    now = [group["params"] for group in optimizer.param_groups]
    came = [group["params"] for group in state["param_groups"]]
    _check_sizes(list(map(len, came)), list(map(len, now)))
    # Torch numbers the parameters of all groups one after the other.
    numbers = itertools.chain.from_iterable(came)
    parameters = itertools.chain.from_iterable(now)
    by_number = dict(zip(numbers, parameters, strict=True))
    for number, values in state["state"].items():
        if number not in by_number:
            raise Mismatch(f"field optimizer.state must be of known parameters, got number {number!r}")
        _check_values(number, values, by_number[number])


def _check_sizes(came: Sequence[int], now: Sequence[int]) -> None:
    if came != now:
        raise Mismatch(f"field optimizer.param_groups must have {now} parameters, got {came}")


def _check_values(number: int, values: Mapping[str, Any], parameter: Tensor) -> None:
    """Raise `Mismatch` if a tensor of the optimizer has another shape than its parameter."""
    for name, value in values.items():
        # Adam keeps its count of steps as a tensor without axes.
        if not isinstance(value, Tensor) or value.ndim == 0:
            continue
        if value.shape != parameter.shape:
            raise Mismatch(
                f"field optimizer.state.{number}.{name} must have shape {list(parameter.shape)}, "
                f"got {list(value.shape)}"
            )


def check_random(state: Tensor) -> None:
    """Raise `Mismatch` unless this is a state of torch's generator of the CPU."""
    _check_alike("random", state, torch.get_rng_state())
