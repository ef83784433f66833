"""Read the words of a command line: methods with their settings, tasks."""

import inspect
from dataclasses import replace
from pathlib import Path

from pluribus.cli.task_options import parse_task_options
from pluribus.data import load_task
from pluribus.data.task import Task
from pluribus.errors import SettingError
from pluribus.method import Method
from pluribus.method_text import parse_options, read_methods, split_outside_brackets
from pluribus.ranges import show
from pluribus.runs.user_code import call_own, resolve

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
