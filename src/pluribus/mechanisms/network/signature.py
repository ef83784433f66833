"""The signature of an ensemble's `forward`: Hugging Face's Trainer and torch.export read it."""

import functools
import inspect
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import Any

OWN = ("members", "draws")
"""Keyword arguments of an ensemble beside those of its network."""


def with_signature_of(forward: Callable[..., Any], method: Any, names: Sequence[str] = OWN) -> Any:
    """Return a bound method that shows the parameters of `forward`, and then some of its own by name.

    The signature of a bound method is that of its function, which all instances share, so this one has a
    copy of the function. `method` is returned where Python cannot tell the signature of `forward`.
    """
    try:
        found = inspect.signature(forward)
    except (TypeError, ValueError):
        return method
    own = inspect.signature(method).parameters
    parameters = list(found.parameters.values())
    # Parameters by name alone stand before **kwargs.
    place = len(parameters) - any(one.kind is one.VAR_KEYWORD for one in parameters)
    parameters[place:place] = [own[name] for name in names if name not in found.parameters]
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    function = _copy(method.__func__)
    function.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]
    return MethodType(function, method.__self__)


def _copy(function: FunctionType) -> FunctionType:
    code, names, name = function.__code__, function.__globals__, function.__name__
    copied = FunctionType(code, names, name, function.__defaults__, function.__closure__)
    copied.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(copied, function)  # type: ignore[return-value]
