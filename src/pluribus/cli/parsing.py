"""What a user named on a command line: methods with their settings, tasks, networks."""

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from pluribus.backbones import BACKBONES
from pluribus.cli.user_code import call_own, resolve
from pluribus.data import load_task
from pluribus.data.task import Task
from pluribus.errors import SettingError
from pluribus.method import Method
from pluribus.method_text import parse_options, read_methods, split_outside_brackets
from pluribus.settings import nearest, show

MOST_DRAWS = 16
"""Draws of any method where all are compared."""


def parse_methods(text: str) -> list[Method]:
    """Read `single, deep_ensembles(members=5)`, or `all` methods with few draws.

    A class of the user's own is `package.module:Class(setting=value)`.
    """
    if text.strip() != "all":
        found: list[Method] = []
        for call in split_outside_brackets(text):
            found += [_own_method(call)] if ":" in call.partition("(")[0] else read_methods(call)
        return found or read_methods(text)
    ordered = sorted(Method.known().values(), key=lambda m: (m.kind() != "single", m.kind()))
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
    """One method of these."""
    found = parse_methods(text)
    if len(found) != 1:
        raise SettingError(
            f"method must be one, however: {text!r} names {len(found)}. Use `pluribus compare` for several."
        )
    return found[0]


def meaning(name: str) -> list[str]:
    """What a method is, and what its settings mean: paragraphs, and an indented line for each setting."""
    told = (inspect.getdoc(type(parse_method(name))) or "").partition("Example:")[0]
    lines: list[str] = []
    for line in told.replace("Args:", "Settings:").rstrip().splitlines():
        if lines and lines[-1] and line and (line.startswith(" " * 8) or not line.startswith(" ")):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return lines


def _with_few_draws(method: Method) -> Method:
    """A comparison of all methods is a first look, most of whose time many draws would take."""
    draws = getattr(method, "draws", 0)
    return replace(method, draws=MOST_DRAWS) if draws > MOST_DRAWS else method  # type: ignore[call-arg]


def resolve_task(name: str, data_dir: Path | None, options: list[str] | None) -> Task:
    """The task that a user named."""
    values = parse_options(options or [])
    if ":" in name:
        task = call_own(name, resolve(name), values)
        if not isinstance(task, Task):
            raise SettingError(
                f"{name} must make a Task, however: what it makes is of type {type(task).__name__}."
            )
        return task
    if name == "digits":
        values = {"train": 300, **values}  # few enough for methods to be told apart
    return load_task(name, data_dir, **values)


def default_model(task: Task) -> str:
    """A small network that takes the task's inputs."""
    return "cnn" if len(task.input_shape) == 3 else "mlp"


class Build:
    """Builds the network that a user named for a task; can be sent to other processes."""

    def __init__(self, name: str, task: Task) -> None:
        self.name, shape = name, task.input_shape
        self.known = {
            "task": task,
            "classes": task.outputs,
            "outputs": task.outputs,
            "in_channels": shape[0],
            "image_size": shape[-1],
            "inputs": math.prod(shape),
        }
        self()  # a network that cannot be built is an error before any training

    def __call__(self) -> nn.Module:
        if ":" not in self.name and self.name not in BACKBONES:
            raise SettingError(
                f"models are {', '.join(BACKBONES)} or package.module:function, however: {self.name!r}."
                + nearest(self.name, BACKBONES)
            )
        function = BACKBONES[self.name] if self.name in BACKBONES else resolve(self.name)
        module = call_own(self.name, function, self._arguments(function))
        if not isinstance(module, nn.Module):
            kind = type(module).__name__
            raise SettingError(
                f"{self.name} must build a torch.nn.Module, however: what it builds is of type {kind}."
            )
        return module

    def _arguments(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Return those of the known values that a builder takes."""
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):  # a function of C has no signature, and takes nothing of ours
            return {}
        return {name: value for name, value in self.known.items() if name in parameters}
