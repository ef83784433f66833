"""Check that the state of a checkpoint fits the ensemble and the optimizer that are to take it."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pluribus.schema import Mismatch


def check_tensors(place: str, came: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise `Mismatch` unless names, shapes and types are those of the ensemble."""
    for name in sorted(came.keys() | expected.keys()):
        if name not in came:
            raise Mismatch(f"field {place}.{name} is missing")
        if name not in expected:
            raise Mismatch(f"field {place}.{name} is unknown")
        wanted, found = described(expected[name]), described(came[name])
        if wanted != found:
            raise Mismatch(f"field {place}.{name} must be {wanted}, got {found}")


def described(tensor: Tensor) -> str:
    """Return type and shape of a tensor."""
    return f"{tensor.dtype} {list(tensor.shape)}"


def check_optimizer(state: Mapping[str, Any], optimizer: Any) -> None:
    """Raise `Mismatch` unless groups have as many parameters as now, and their tensors the same shapes."""
    now = [group["params"] for group in optimizer.param_groups]
    came = [group["params"] for group in state["param_groups"]]
    _check_sizes([len(group) for group in came], [len(group) for group in now])
    # Torch numbers the parameters of all groups one after the other.
    numbers = [number for group in came for number in group]
    parameters = [parameter for group in now for parameter in group]
    by_number = dict(zip(numbers, parameters, strict=True))
    for number, values in state["state"].items():
        if number not in by_number:
            raise Mismatch(f"field optimizer.state must be of known parameters, got number {number!r}")
        _check_values(number, values, by_number[number])


def _check_sizes(came: Sequence[int], now: Sequence[int]) -> None:
    if came != now:
        raise Mismatch(f"field optimizer.param_groups must have {now} parameters, got {came}")


def _check_values(number: int, values: Mapping[str, Any], parameter: Tensor) -> None:
    """Raise `Mismatch` for a tensor of an optimizer that has another shape than its parameter."""
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
    """Raise `Mismatch` unless this is the state of torch's generator of the CPU."""
    expected = torch.get_rng_state()
    if described(state) != described(expected):
        raise Mismatch(f"field random must be {described(expected)}, got {described(state)}")
