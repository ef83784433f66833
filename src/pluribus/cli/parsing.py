"""Read the words of a command line: methods with their settings, tasks, networks."""

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from pluribus.backbones import BACKBONES
from pluribus.cli.task_options import parse_task_options
from pluribus.cli.user_code import call_own, resolve
from pluribus.data import load_task
from pluribus.data.signature import Signature
from pluribus.data.task import Task
from pluribus.errors import SettingError
from pluribus.method import Method
from pluribus.method_text import parse_options, read_methods, split_outside_brackets
from pluribus.ranges import check, nearest, show

WIDTH = "width"
WIDEST = 4096
MOST_DRAWS = 16
"""Most draws of a method if all methods are compared."""


def parse_methods(text: str) -> list[Method]:
    """Return the methods of a text such as `single, deep_ensembles(members=5)`, or `all` of them.

    A class of the user's own is `package.module:Class(setting=value)`.
    """
    if text.strip() != "all":
        found: list[Method] = []
        for call in split_outside_brackets(text):
            found += [_own_method(call)] if ":" in call.partition("(")[0] else read_methods(call)
        return found or read_methods(text)
    ordered = sorted(Method.known().values(), key=lambda method: method.kind())
    # The single network comes first: all others are compared with it.
    ordered.sort(key=lambda method: method.kind() != "single")
    return [_with_few_draws(method()) for method in ordered]


def _own_method(call: str) -> Method:
    """Return a method of a class that the command line names by its import path."""
    reference, opened, settings = (part.strip() for part in call.partition("("))
    if bool(opened) != call.endswith(")"):
        raise SettingError(f"methods are written package.module:Class(setting=value, …), got {show(call)}.")
    found = resolve(reference)
    if not isinstance(found, type) or not issubclass(found, Method):
        raise SettingError(f"{reference} must be a class of methods, a subclass of pluribus.Method.")
    values = parse_options(split_outside_brackets(settings.removesuffix(")")))
    found.check_names(values)
    method = call_own(reference, found, values)
    assert isinstance(method, Method)
    return method


def parse_method(text: str) -> Method:
    """Return the one method of a text; raise `SettingError` for none or several."""
    found = parse_methods(text)
    if len(found) != 1:
        raise SettingError(
            f"method must be one, got {text!r} with {len(found)}. Use `pluribus compare` for several."
        )
    return found[0]


def meaning(name: str) -> list[str]:
    """Return the description of a method: paragraphs, and an indented line for each setting."""
    docstring = inspect.getdoc(type(parse_method(name))) or ""
    text, _, _ = docstring.partition("Example:")
    text = text.replace("Args:", "Settings:").rstrip()
    lines: list[str] = []
    for line in text.splitlines():
        if lines and _continues(lines[-1], line):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return lines


def _continues(before: str, line: str) -> bool:
    """Return whether a line of a docstring continues the paragraph or setting of the line before.

    Args:
        before: The line before, with those that it continues.
        line: The line.
    """
    if not before or not line:
        return False
    # A setting has four spaces; the lines that continue it have eight, those of a paragraph none.
    indent = len(line) - len(line.lstrip())
    return indent == 0 or indent >= 8


def _with_few_draws(method: Method) -> Method:
    """Return a method with at most `MOST_DRAWS` draws."""
    # A comparison of all methods is a first look. With many draws, sampling would take most of its time.
    if getattr(method, "draws", 0) <= MOST_DRAWS:
        return method
    return replace(method, draws=MOST_DRAWS)  # type: ignore[call-arg]


def resolve_task(name: str, data_dir: Path | None, options: list[str] | None) -> Task:
    """Return a built-in task by its name, or one of the user's own from `package.module:function`.

    Raises:
        SettingError: there is no such task, or the user's function fails or returns something else.
    """
    values = parse_task_options(options or [])
    if ":" not in name:
        if name == "digits":
            # With all samples every method is nearly perfect, and a comparison shows nothing.
            values = {"train": 300, **values}
        return load_task(name, data_dir, **values)
    task = call_own(name, resolve(name), values)
    if not isinstance(task, Task):
        raise SettingError(f"{name} must return a Task, got {type(task).__name__}.")
    return task


def default_model(task: Task) -> str:
    """Return the name of a small network that takes the task's inputs."""
    return "cnn" if len(task.input_shape) == 3 else "mlp"


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
