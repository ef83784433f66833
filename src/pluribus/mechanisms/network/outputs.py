"""Which of the things a network returns is the prediction."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from pluribus.errors import InputError

Output = str | int | Callable[[Any], Tensor] | None


def select_output(returned: Any, output: Output = None) -> Tensor:
    """The prediction, `[batch, ...]`, among what the network returned.

    Args:
        returned: A tensor, a sequence, a mapping or an object with attributes.
        output: A key, a position or a function that picks it. None finds it: the tensor itself, the
            entry called `logits`, or the only tensor there is.
    """
    chosen = _find(returned) if output is None else _pick(returned, output)
    if not isinstance(chosen, Tensor):
        raise InputError(
            f"output must pick a tensor, however: {output!r} picked {type(chosen).__name__} "
            f"from {_describe(returned)}."
        )
    return chosen


def _find(returned: Any) -> Any:
    if isinstance(returned, Tensor):
        return returned
    logits = returned.get("logits") if isinstance(returned, Mapping) else getattr(returned, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    if isinstance(returned, Mapping | list | tuple):
        values = list(returned.values()) if isinstance(returned, Mapping) else returned
        tensors = [value for value in values if isinstance(value, Tensor)]
        if len(tensors) == 1:
            return tensors[0]
    raise InputError(
        f"the network must return a tensor, or logits among others, however: {_describe(returned)}. "
        "Pass convert(..., output=...): a key, a position or a function that picks the prediction."
    )


def _pick(returned: Any, output: str | int | Callable[[Any], Tensor]) -> Any:
    try:
        if callable(output):
            return output(returned)
        if isinstance(output, str) and not isinstance(returned, Mapping):
            return getattr(returned, output)
        if not isinstance(returned, Tensor):  # a position in a tensor would be a sample
            return returned[output]
    except Exception as error:  # whatever a user's function raises
        problem = f" ({type(error).__name__}: {error})"
    else:
        problem = ""
    raise InputError(
        f"output must name something the network returns, however: output={output!r} "
        f"and it returned {_describe(returned)}{problem}."
    )


def _describe(returned: Any) -> str:
    if isinstance(returned, Mapping):
        return f"a {type(returned).__name__} of {', '.join(map(str, returned))}"
    if isinstance(returned, list | tuple):
        return f"a {type(returned).__name__} of {', '.join(type(value).__name__ for value in returned)}"
    return f"a {type(returned).__name__}"
