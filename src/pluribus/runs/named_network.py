"""The network that a name stands for: a built-in one, or one of the user's own from the command line."""

import inspect
import math
from collections.abc import Callable
from typing import Any

from torch import nn

from pluribus.backbones import BACKBONES
from pluribus.data.signature import Signature
from pluribus.data.task import Task
from pluribus.errors import SettingError
from pluribus.method_text import parse_options, split_outside_brackets
from pluribus.ranges import check, nearest, show
from pluribus.runs.user_code import call_own, resolve

WIDTH = "width"
WIDEST = 4096


def split_width(name: str) -> tuple[str, dict[str, int]]:
    """Return the name of a network and its width, `cnn(width=8)` as `cnn` and 8; no width gives none.

    Raises:
        SettingError: something else stands in brackets, or the width is out of range.
    """
    function, opened, given = name.partition("(")
    if not opened:
        return name, {}
    values = parse_options(split_outside_brackets(given.removesuffix(")")))
    if list(values) != [WIDTH] or not given.endswith(")"):
        raise SettingError(f"a network is written name or name(width=8), got {show(name)}.")
    # Files of runs hold such names too: no network of this size fits into memory.
    check(WIDTH, values[WIDTH], int, at_least=1, at_most=WIDEST)
    return function, values


class Build:
    """Factory of the network that a user named for a task. It can be pickled for other processes.

    Args:
        name: A built-in network, or `package.module:function`, with a width if wanted: `cnn(width=8)`.
        task: The data or their signature, whose shapes are arguments of the network.

    Raises:
        SettingError: there is no such network, or the user's function fails or returns something else.
    """

    def __init__(self, name: str, task: Task | Signature) -> None:
        self.name = name
        self.function_name, self.changes = split_width(name)
        shape = task.input_shape
        self.known = {
            "task": task,
            "classes": task.outputs,
            "outputs": task.outputs,
            "in_channels": next(iter(shape), 1),
            "image_size": next(reversed(shape), 1),
            "inputs": math.prod(shape),
            "codes": task.codes,
        }
        # Build once now, so that a network that cannot be built fails before any training.
        self()

    def __call__(self, **changes: Any) -> nn.Module:
        function = self._function()
        module = call_own(self.name, function, self._arguments(function) | self.changes | changes)
        if not isinstance(module, nn.Module):
            raise SettingError(f"{self.name} must return a torch.nn.Module, got {type(module).__name__}.")
        return module

    @property
    def default_width(self) -> Any:
        """Return the width of the network by default; None if its builder has none."""
        parameter = inspect.signature(self._function()).parameters.get(WIDTH)
        return self.changes.get(WIDTH, None if parameter is None else parameter.default)

    def _function(self) -> Callable[..., Any]:
        """Return the builder of the network."""
        if self.function_name in BACKBONES:
            return BACKBONES[self.function_name]
        if ":" in self.function_name:
            return resolve(self.function_name)
        raise SettingError(
            f"models are {', '.join(BACKBONES)} or package.module:function, got {self.name!r}."
            + nearest(self.name, BACKBONES)
        )

    def _arguments(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Return those of the known values that a builder takes."""
        try:
            parameters = inspect.signature(function).parameters
        # A function written in C has no signature, and takes no argument of ours.
        except (TypeError, ValueError):
            return {}
        return {name: value for name, value in self.known.items() if name in parameters}
