"""The first tensor among the things that a module returns, and the same things with another one."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor


def first_tensor(returned: Any) -> Tensor | None:
    """The first tensor of a tensor, a sequence, a mapping or a dataclass; None where there is none."""
    if isinstance(returned, Tensor):
        return returned
    for _, value in _entries(returned):
        found = first_tensor(value)
        if found is not None:
            return found
    return None


def with_first(returned: Any, tensor: Tensor) -> Any:
    """The same with another first tensor; what was returned is not changed."""
    if isinstance(returned, Tensor):
        return tensor
    for key, value in _entries(returned):
        if first_tensor(value) is not None:
            return _replaced(returned, key, with_first(value, tensor))
    return returned


def _entries(returned: Any) -> list[tuple[Any, Any]]:
    if isinstance(returned, Mapping):
        return list(returned.items())
    if isinstance(returned, list | tuple):
        return list(enumerate(returned))
    if dataclasses.is_dataclass(returned) and not isinstance(returned, type):
        return [(one.name, getattr(returned, one.name)) for one in dataclasses.fields(returned)]
    return []


def _replaced(returned: Any, key: Any, value: Any) -> Any:
    if isinstance(returned, tuple):
        values = [*returned[:key], value, *returned[key + 1 :]]
        return type(returned)(*values) if hasattr(returned, "_fields") else tuple(values)
    changed = copy.copy(returned)
    if isinstance(returned, Mapping | list):
        changed[key] = value
    else:
        object.__setattr__(changed, key, value)
    return changed
