"""Outputs: which of the things that a network returns is the prediction; exchanging a tensor in them."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from pluribus.errors import InputError

Output = str | int | Callable[[Any], Tensor] | None


def select_output(returned: Any, output: Output = None) -> Tensor:
    """Return the prediction, `[batch, ...]`, among what the network returned.

    Args:
        returned: A tensor, a sequence, a mapping or an object with attributes.
        output: A key, a position or a function that picks it. None finds it: the tensor itself, the
            entry called `logits`, or the only tensor there is.

    Raises:
        InputError: Nothing, or no tensor, was found.
    """
    chosen = _find(returned) if output is None else _pick(returned, output)
    if not isinstance(chosen, Tensor):
        raise InputError(
            f"output must pick a tensor, got {type(chosen).__name__} for output={output!r} "
            f"from {_describe(returned)}. Pick one of its tensors."
        )
    return chosen


def _find(returned: Any) -> Any:
    if isinstance(returned, Tensor):
        return returned
    # Hugging Face models return losses and hidden states beside their logits.
    logits = returned.get("logits") if isinstance(returned, Mapping) else getattr(returned, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    if isinstance(returned, Mapping | list | tuple):
        values = list(returned.values()) if isinstance(returned, Mapping) else returned
        tensors = [value for value in values if isinstance(value, Tensor)]
        if len(tensors) == 1:
            return tensors[0]
    raise InputError(
        f"the network must return a tensor, or logits among others, got {_describe(returned)}. "
        "Pass convert(..., output=...): a key, a position or a function that picks the prediction."
    )


def _pick(returned: Any, output: str | int | Callable[[Any], Tensor]) -> Any:
    try:
        if callable(output):
            return output(returned)
        if isinstance(output, str) and not isinstance(returned, Mapping):
            return getattr(returned, output)
        # A position in a tensor would be a sample.
        if not isinstance(returned, Tensor):
            return returned[output]
    # A user's function may raise anything.
    except Exception as error:
        problem = f" ({type(error).__name__}: {error})"
    else:
        problem = ""
    raise InputError(
        f"output must name something that the network returns, got output={output!r} "
        f"for {_describe(returned)}{problem}. Pass a key, a position or a function."
    )


def _describe(returned: Any) -> str:
    if isinstance(returned, Mapping):
        return f"a {type(returned).__name__} of {', '.join(map(str, returned))}"
    if isinstance(returned, list | tuple):
        return f"a {type(returned).__name__} of {', '.join(type(value).__name__ for value in returned)}"
    return f"a {type(returned).__name__}"


def first_tensor(returned: Any) -> Tensor | None:
    """Return the first tensor of a tensor, a sequence, a mapping or a dataclass; None if there is none."""
    if isinstance(returned, Tensor):
        return returned
    for _, value in _entries(returned):
        found = first_tensor(value)
        if found is not None:
            return found
    return None


def with_first(returned: Any, tensor: Tensor) -> Any:
    """Return a copy of what was returned with another first tensor."""
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
        # A named tuple takes its entries one by one, a plain one as a sequence.
        return type(returned)(*values) if hasattr(returned, "_fields") else tuple(values)
    changed = copy.copy(returned)
    if isinstance(returned, Mapping | list):
        changed[key] = value
    else:
        # A frozen dataclass refuses plain assignment.
        object.__setattr__(changed, key, value)
    return changed
