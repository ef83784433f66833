"""What a user named on a command line: methods with their settings, tasks, networks."""

import ast
import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from pluribus.backbones import BACKBONES
from pluribus.cli.user_code import call_own, resolve
from pluribus.data import load_task
from pluribus.data.signature import Signature
from pluribus.data.task import Task
from pluribus.errors import SettingError
from pluribus.method import Method
from pluribus.settings import INFINITE, nearest

MOST_DRAWS = 16
"""Draws of any method where all are compared."""


def parse_methods(text: str) -> list[Method]:
    """`single, deep_ensembles(members=5)` as values; unknown names get the nearest one."""
    known = Method.known()
    if text.strip() == "all":
        ordered = sorted(known.values(), key=lambda m: (m.kind() != "single", m.kind()))
        return [_with_few_draws(method()) for method in ordered]
    found: list[Method] = []
    for call in split_outside_brackets(text):
        name, opened, settings = (part.strip() for part in call.partition("("))
        if bool(opened) != call.endswith(")"):
            raise SettingError(f"methods are written name(setting=value, …), however: {call!r}.")
        settings = settings.removesuffix(")")
        if name not in known:
            raise SettingError(
                f"methods are {', '.join(sorted(known))}, however: {name!r}." + nearest(name, known)
            )
        values = parse_options(split_outside_brackets(settings))
        known[name].check_names(values)
        found.append(known[name](**values))
    if not found:
        raise SettingError(f"methods must name at least one, such as single, however: {text!r}.")
    return found


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


def split_outside_brackets(text: str) -> list[str]:
    """The parts between commas that are in no brackets and no quotes, without those that are empty."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if letter in "'\"" and quote in ("", letter):
            quote = "" if quote else letter
        depth += 0 if quote else (letter in "([") - (letter in ")]")
        if depth < 0:
            break
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise SettingError(f"every bracket must be opened and closed, however: {text!r}.")
    return [part.strip() for part in parts if part.strip()]


def parse_options(texts: Iterable[str]) -> dict[str, Any]:
    """Each `name=value`, every name once."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise SettingError(f"settings are written name=value, however: {text!r}.")
        if name in values:
            raise SettingError(f"settings are given once, however: {name} is given twice.")
        values[name] = parse_value(value)
    return values


def parse_value(text: str) -> Any:
    """A Python literal; what is none is a word, or several of them in brackets, but for `inf`, a number."""
    if text == INFINITE:
        return math.inf
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        # Python's parser has no memory for a thousand nested brackets, which are no setting either.
        return _words(text) or text


def _words(text: str) -> tuple[Any, ...]:
    """`(norm, output)` as two words; nothing where it is one, such as the pattern `[ab]*.[01]`."""
    if (text[:1], text[-1:]) not in (("(", ")"), ("[", "]")):
        return ()
    try:
        words = split_outside_brackets(text[1:-1])
    except SettingError:  # the first bracket is closed before the end
        return ()
    return tuple(map(parse_value, words)) if len(words) > 1 else ()


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
    """Builds the network that a user named for a task or its signature; can be sent to other processes."""

    def __init__(self, name: str, task: Task | Signature) -> None:
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
