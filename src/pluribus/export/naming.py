"""Naming: functions whose parameters have chosen names, by which torch.export names the inputs of a graph."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any


def with_parameters(function: Callable[..., Any], names: Sequence[str]) -> Any:
    """Return a function whose parameters have these names, and which passes their values on by position.

    Args:
        function: Takes as many values as there are names.
        names: Identifiers.
    """
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    signature = inspect.Signature(parameters)

    def forward(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        return function(*bound.args)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    return forward
