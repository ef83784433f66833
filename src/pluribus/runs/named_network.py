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
from pluribus.network_name import split_sizes
from pluribus.ranges import nearest
from pluribus.runs.user_code import call_own, resolve


class Build:
    """Factory of the network that a user named for a task. It can be pickled for other processes.

    Args:
        name: A built-in network, or `package.module:function`, with its size if wanted: `cnn(width=8)`.
        task: The data or their signature, whose shapes are arguments of the network.

    Raises:
        SettingError: there is no such network, or the user's function fails or returns something else.
    """

    def __init__(self, name: str, task: Task | Signature) -> None:
        self.name = name
        self.function_name, self.changes = split_sizes(name)
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

    def default_size(self, name: str) -> Any:
        """Return the width or the depth of the network by default; None if its builder has none."""
        parameter = inspect.signature(self._function()).parameters.get(name)
        return self.changes.get(name, None if parameter is None else parameter.default)

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
